package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// talker is a process whose lines are waited for.
type talker struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

// talk starts a process and reads what it writes.
func talk(t *testing.T, dir string, env []string, name string, args ...string) *talker {
	t.Helper()
	p := &talker{t, exec.Command(name, args...), make(chan string, 1000)}
	p.cmd.Dir, p.cmd.Env = dir, append(operatorsEnviron(), env...)
	r, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(r); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(2*time.Minute, func() { _ = p.cmd.Process.Kill() })
		defer timer.Stop()
		_ = p.cmd.Wait()
		_ = w.Close()
	})
	return p
}

// hear returns the first line with the pattern in it.
func (p *talker) hear(pattern string) []string {
	p.t.Helper()
	wanted, deadline := regexp.MustCompile(pattern), time.After(2*time.Minute)
	var heard []string
	for {
		select {
		case line := <-p.lines:
			heard = append(heard, line)
			if found := wanted.FindStringSubmatch(line); found != nil {
				return found
			}
		case <-deadline:
			p.t.Fatalf("%q is missing in:\n%s", pattern, strings.Join(heard, "\n"))
		}
	}
}

// operatorsEnviron is the environment without the variables of this repository's tests: the
// program refuses unknown variables of its name.
func operatorsEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "COUNTERSIGN_") })
}

func TestDebugCommandsAttachAgentToProvider(t *testing.T) {
	proctest.NeedsProcess(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := proctest.Folder(t)
	config := "namespace: a\nservice_account: web\nsocket: {path: ./sock}\nproviders: [{name: odd, settings: {zone: a}}]\n"
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"TMPDIR=" + dir, "XDG_RUNTIME_DIR="}
	debugger := talk(t, dir, env, self, asAgent, "provider", "debug", "odd="+oddProvider(t), "--insecure")
	printed := debugger.hear(`^  (\S+) dlv exec (\S+)$`)
	talk(t, dir, nil, printed[1], printed[2]) // without the debugger, which is not everywhere
	attach := debugger.hear(`^  countersign (agent --insecure-attach odd=\S+)$`)
	agent := talk(t, dir, env, self, append(append([]string{asAgent}, strings.Fields(attach[1])...), "--config", "c.yaml")...)
	agent.hear("neither pinned nor confined")
	agent.hear("provider=odd state=ready")
	// The provider's host goes first: its streams would keep the provider in its grace period.
	_ = debugger.cmd.Process.Signal(syscall.SIGTERM)
}

// Each language's provider gets what a host passes, whatever starts it: here its interpreter alone.
func TestDebugCommandRunsProvidersOfOtherLanguages(t *testing.T) {
	countersign := programs.Path(t, "countersign")
	for name, c := range map[string]struct {
		folder, debugger string
		command          []string // in the place of the debugger
	}{
		"python": {"COUNTERSIGN_PROVIDER_PYTHON", `python3 -Xfrozen_modules=off -m debugpy --listen 127\.0\.0\.1:5678 --wait-for-client`, []string{"venv/bin/python3"}},
		"node":   {"COUNTERSIGN_PROVIDER_NODE", `node --inspect-brk --preserve-symlinks-main`, []string{"node", "--preserve-symlinks-main"}},
		"rust":   {"COUNTERSIGN_PROVIDER_RUST", `gdb --args`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			folder := programs.Foreign(t, c.folder)
			provider := filepath.Join(folder, "countersign-provider-acme")
			dir := proctest.Folder(t)
			debugger := talk(t, dir, []string{"TMPDIR=" + dir, "XDG_RUNTIME_DIR="}, countersign, "provider", "debug", "acme="+provider, "--insecure")
			run := debugger.hear(`^  (\S+) ` + c.debugger + ` (\S+)$`)[1]
			command := []string{provider}
			if c.command != nil {
				command = append([]string{filepath.Join(folder, c.command[0])}, append(c.command[1:], provider)...)
			}
			for range 2 { // started again, it is reached again
				p := talk(t, dir, nil, run, command...)
				p.hear(`^1\|1\|unix\|`)
			}
			debugger.hear("^acme 0.1.0 is running")
			_ = debugger.cmd.Process.Signal(syscall.SIGTERM) // ends the lifelines
		})
	}
}
