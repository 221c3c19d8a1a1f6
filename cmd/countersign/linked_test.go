package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// Who calls methods by names that are not known before, as templates do, has the
// linker keep all methods of all messages: 5 MB of binary, 3.5 MB of them resident.
func TestProgramLinksNoTemplates(t *testing.T) {
	proctest.NeedsProcess(t)
	cmd := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}: {{join .Imports \" \"}}", ".")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		pkg, imports, _ := strings.Cut(line, ": ")
		// cobra has it for those who set templates, and the linker drops it for us;
		// x/net/trace is left out by the tag grpcnotrace.
		known := []string{"github.com/spf13/cobra", "golang.org/x/net/trace", "html/template"}
		for imported := range strings.FieldsSeq(imports) {
			if strings.HasSuffix(imported, "/template") && !slices.Contains(known, pkg) {
				t.Errorf("%s imports %s", pkg, imported)
			}
			if strings.HasSuffix(imported, "/otlptracegrpc") {
				t.Errorf("%s imports %s: traces are exported over HTTP only", pkg, imported)
			}
		}
	}
}

// mostInit is what a package of ours may allocate before main, in bytes. Generated code registers
// messages, and is not ours to change.
const mostInit = 14 << 10

// Each start of each command pays for what packages prepare: expressions and tables are made on
// first use (sync.OnceValue).
func TestPackagesPrepareLittleBeforeMain(t *testing.T) {
	proctest.NeedsProcess(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, asAgent, "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`init github.com/countersign-dev/countersign/(\S+) .* (\d+) bytes`).FindAllStringSubmatch(trace.String(), -1)
	for _, line := range lines {
		bytes, err := strconv.Atoi(line[2])
		if err != nil || bytes > mostInit && !strings.HasPrefix(line[1], "proto/") {
			t.Errorf("%s allocates %s bytes before main, and may allocate %d", line[1], line[2], mostInit)
		}
	}
	if len(lines) == 0 {
		t.Errorf("the trace has none of our packages: %q", trace.String())
	}
}
