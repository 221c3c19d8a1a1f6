package settings

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/internal/environ"
)

// A package's configuration applies unless the command line or the environment names another.
func TestInstalledConfigurationIsReadWithoutFlags(t *testing.T) {
	dir := t.TempDir()
	file, none := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "none.yaml")
	if err := os.WriteFile(file, []byte("socket: {path: /run/s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		installed, want string
		env             environ.Vars
		args            []string
	}{
		{installed: file, want: file},
		{installed: none},
		{},
		{installed: file, args: []string{"--socket", "/x"}},
		{installed: file, args: []string{"--set", "socket.path=/x"}},
		{installed: file, args: []string{"--config", "own.yaml"}, want: "own.yaml"},
		{installed: file, env: environ.Vars{"COUNTERSIGN_CONFIG=env.yaml"}, want: "env.yaml"},
	} {
		f, cmd := Flags{Env: test.env, Installed: test.installed}, &cobra.Command{}
		f.AddFlags(cmd)
		if err := cmd.ParseFlags(test.args); err != nil {
			t.Fatal(err)
		}
		if got := f.FileName(); got != test.want {
			t.Errorf("%v %v: got %q, want %q", test.env, test.args, got, test.want)
		}
	}
}
