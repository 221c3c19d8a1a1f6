// Package e2e holds the real binaries against real clients: Envoy, and clients of the
// protocol that are the tests' own, in Go and on @grpc/grpc-js. Each test starts with
// [startAgent], what it proves is its name. `make test` installs Envoy, grpc-js and,
// in CI, Debian's programs, and names them in COUNTERSIGN_ENVOY and so on.
package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

func TestMain(m *testing.M) {
	if os.Getenv(confine) != "" {
		beConfined()
	}
	if socket := os.Getenv(spiffeClient); socket != "" {
		beSPIFFEClient(socket)
		return
	}
	// They wait more than they work.
	flag.Set("test.parallel", "8")
	flag.Parse()
	// gRPC's xDS client never ends the watch of its own certificate's files.
	watcher := goleak.IgnoreTopFunction("google.golang.org/grpc/credentials/tls/certprovider/pemfile.(*watcher).run")
	goleak.VerifyTestMain(m, watcher, goleak.Cleanup(func(code int) {
		_ = programs.Remove()
		os.Exit(code)
	}))
}

// binaries returns the folder with the programs that most tests start.
func binaries(t *testing.T) string {
	t.Helper()
	return programs.Folder(t, "countersign", "countersign-discovery", "countersign-provider-citadel", "countersign-provider-file",
		"countersign-provider-minimal", "countersign-provider-moody", "countersign-provider-strict", "foreignsds")
}

var pins sync.Map // by the path of a binary

// pinOf returns the SHA-256 of a binary. It is computed once: a binary has 20 MB.
func pinOf(t *testing.T, path string) string {
	t.Helper()
	if pin, ok := pins.Load(path); ok {
		return pin.(string)
	}
	content, err := os.ReadFile(path)
	mustDo(t, err)
	sum := sha256.Sum256(content)
	pin := hex.EncodeToString(sum[:])
	pins.Store(path, pin)
	return pin
}
