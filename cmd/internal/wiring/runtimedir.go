package wiring

import (
	"cmp"
	"fmt"
	"os"

	"github.com/countersign-dev/countersign/cmd/internal/environ"
)

// RuntimeDir returns where sockets of providers are made, as configured or by default; empty: the
// system's folder for temporary files.
func RuntimeDir(env environ.Vars, configured string) string {
	return cmp.Or(configured, env.Get("XDG_RUNTIME_DIR"))
}

// CheckRuntimeDir returns an error if no provider can be started in the folder, the setting
// runtime_dir or its default; "" is the system's folder for temporary files. Unchecked, each
// start would fail, which looks like a provider that crashes.
func CheckRuntimeDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("runtime_dir is %q: %w; create the folder", dir, err)
	case !info.IsDir():
		return fmt.Errorf("runtime_dir is %q: that is not a folder", dir)
	}
	return nil
}
