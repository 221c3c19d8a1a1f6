// Package e2e holds the real binaries against real clients: Envoy, and clients of the
// protocol that are the tests' own, in Go and on @grpc/grpc-js. Each test starts with
// [startAgent], what it proves is its name. `make test` installs Envoy, grpc-js and,
// in CI, Debian's programs, and names them in COUNTERSIGN_ENVOY and so on.
package e2e

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/testprogram"
)

func TestMain(m *testing.M) {
	if os.Getenv(confine) != "" {
		beConfined()
	}
	// They wait more than they work.
	flag.Set("test.parallel", "5")
	flag.Parse()
	// gRPC's xDS client never ends the watch of its own certificate's files.
	watcher := goleak.IgnoreTopFunction("google.golang.org/grpc/credentials/tls/certprovider/pemfile.(*watcher).run")
	goleak.VerifyTestMain(m, watcher, goleak.Cleanup(func(code int) {
		if built.dir != "" {
			os.RemoveAll(built.dir)
		}
		os.Exit(code)
	}))
}

// programs are what the tests build, by the folder of the module.
var programs = []struct{ dir, pkg, name string }{
	{"../plugin-host", "./cmd/countersign", "countersign"},
	{"../providers/file", ".", "countersign-provider-file"},
	{"../providers/citadel", ".", "countersign-provider-citadel"},
	{"../providers/kubernetes", "./cmd/countersign-discovery", "countersign-discovery"},
	{".", "./testprovider", "countersign-provider-moody"},
	{".", "./foreignsds", "foreignsds"},
	{"../examples", "./provider-minimal", "countersign-provider-minimal"},
	{".", "./strictprovider", "countersign-provider-strict"},
}

// built is where they are.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// binaries returns the folder with the programs, and builds them the first time.
func binaries(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "e2e-bin"); built.err == nil {
			built.err = errors.Join(os.Chmod(built.dir, 0o755), buildInto(built.dir)) // other users run them, too
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

func buildInto(dir string) error {
	for _, p := range programs {
		if err := testprogram.Build(filepath.Join(dir, p.name), p.dir, p.pkg); err != nil {
			return err
		}
	}
	return nil
}
