package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

// example is a folder of examples/, whose files an operator copies, with a server's
// configuration and the agent's.
type example struct {
	name  string
	dir   string // takes what the two have written
	paths map[string]string
}

// here has the example use other paths and addresses than it names, which it must.
func (e example) here(t *testing.T, file string) string {
	t.Helper()
	text := readText(t, programs.File(t, "examples/"+e.name+"/"+file))
	for path, ours := range e.paths {
		text = strings.ReplaceAll(text, path, ours)
	}
	return text
}

// bySystemd is how the examples reload a server. The tests here start it without systemd and replace
// this by a signal; tools/packages has the examples as they are, with systemd.
func bySystemd(service string) string {
	return "reload: {command: [/usr/bin/systemctl, reload, " + service + ".service]}"
}

// startAgent starts an agent with the secrets and outputs of the example, and returns
// when the files are there. The rest is the tests' own.
func (e example) startAgent(t *testing.T) *agent {
	t.Helper()
	var c struct {
		Secrets, Outputs []map[string]any
	}
	if err := yaml.Unmarshal([]byte(e.here(t, "countersign.yaml")), &c); err != nil || len(c.Secrets) != 1 || len(c.Outputs) != 1 {
		t.Fatalf("the example has %d secrets and %d outputs: %v", len(c.Secrets), len(c.Outputs), err)
	}
	a := startAgent(t, agentConfig{workload: c.Secrets[0], outputs: c.Outputs})
	a.log.await(t, "files written")
	return a
}

// write puts the server's configuration where it reads it.
func (e example) write(t *testing.T, file string, more ...string) (path string) {
	t.Helper()
	path = filepath.Join(e.dir, file)
	writeWhole(t, path, []byte(strings.Join(append(more, e.here(t, file)), "\n")))
	return path
}

// Copied as they are, with the provider's pin, they are right.
func TestServerExamplesAreValid(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	pin := pinOf(t, filepath.Join(bin, "countersign-provider-file"))
	for _, name := range []string{"nginx", "haproxy", "postgresql"} {
		checked(t, ".", filepath.Join(bin, "countersign"), "config", "validate", "--config", programs.File(t, "examples/"+name+"/countersign.yaml"),
			"--set", "providers.file.sha256="+pin)
	}
}
