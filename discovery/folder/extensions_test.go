package folder

import (
	"os/exec"
	"strings"
	"testing"
)

// A version of go-control-plane may bring new packages; they belong in extensions.go or filters.go.
func TestAllEnvoyExtensionsAreKnown(t *testing.T) {
	if testing.Short() {
		t.Skip("lists packages")
	}
	const envoy = "github.com/envoyproxy/go-control-plane/envoy/"
	known := goList(t, "-f", `{{join .Imports "\n"}}`, ".")
	for pkg := range strings.FieldsSeq(goList(t, envoy+"extensions/...")) {
		if !strings.Contains(known+"\n", pkg+"\n") {
			t.Errorf("neither extensions.go nor filters.go imports %s", pkg)
		}
	}
}

func goList(t *testing.T, args ...string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return string(out)
}
