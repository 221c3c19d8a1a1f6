package main

import (
	"os/exec"
	"slices"
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
		}
	}
}
