//go:build check

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// session is a fenced console block, line by line: "$ " begins a command, "> "
// continues it, and what follows is what it prints; … stands for anything.
type session struct{ command, prints string }

func sessionsOf(t *testing.T, page string) []session {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []session
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				all = append(all, session{command: command})
				continue
			}
			last := &all[len(all)-1]
			if more, ok := strings.CutPrefix(line, ">"); ok {
				last.command += strings.TrimPrefix(more, " ")
				continue
			}
			last.prints += line
		}
	}
	return all
}

// fails reports whether the page shows a command that fails: a test that does.
func (s session) fails() bool { return strings.HasSuffix(s.prints, "\nFAIL\n") }

// script runs all commands in one shell, each between two marks.
func script(all []session) string {
	var out strings.Builder
	out.WriteString("set -e\nset -m\n")
	for i, s := range all {
		if s.fails() {
			s.command = "! " + s.command // if it does not fail, it prints something else
		}
		fmt.Fprintf(&out, "echo '<<%d'\n%s", i, s.command)
	}
	return out.String() + "echo '<<end'\n"
}

func TestDocumentedCommandsWork(t *testing.T) {
	for _, page := range []string{"docs/from-spire.md", "docs/start-machine.md", "docs/write-a-provider.md"} {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			play(t, programs.File(t, page))
		})
	}
	t.Run("install", func(t *testing.T) {
		t.Parallel()
		play(t, programs.File(t, "docs/install.md"), filepath.Dir(programs.Foreign(t, "COUNTERSIGN_ENVOY")))
	})
}

// play runs the commands of a page in an empty folder and compares what they print. They find
// the programs of these folders, too.
func play(t *testing.T, page string, more ...string) {
	t.Helper()
	dir := proctest.Folder(t)
	// Copies outside of the clone: what a release hands out has no source around it.
	bin := programs.Folder(t, "countersign", "countersign-provider-file")
	all := sessionsOf(t, page)
	if len(all) == 0 {
		t.Fatal("the page has no commands")
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script(all))
	cmd.Dir = dir
	flags := "GOFLAGS=-mod=readonly " + strings.Join(programs.Flags(), " ")
	cmd.Env = append(operatorsEnviron(), "PATH="+strings.Join(append([]string{bin}, more...), ":")+":"+os.Getenv("PATH"), "TMPDIR="+dir, "XDG_RUNTIME_DIR=", "GOWORK=off", "GOPROXY=off", flags)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "<<end") {
		t.Fatalf("%v\n%s\n%s", err, out, errs.String())
	}
	printed := regexp.MustCompile(`(?m)^<<\w+\n`).Split(string(out), -1)[1:]
	for i, s := range all {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(s.prints), "…", "(?s:.*)")
		if s.prints != "" && !regexp.MustCompile("^"+pattern+"$").MatchString(printed[i]) {
			t.Errorf("$ %sprinted\n%s\nthe page has\n%s", s.command, printed[i], s.prints)
		}
	}
}
