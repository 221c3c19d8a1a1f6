//go:build e2e && linux

// Package ingress_test holds the gateway's socket of the agent against the real
// countersign-discovery, a real API server and a real Envoy, each a process of its own.
// `make e2e` names the binaries that it does not build in COUNTERSIGN_KUBERNETES and
// COUNTERSIGN_ENVOY.
package ingress_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/testprogram"
)

// programs has what the tests build, once.
var programs string

func TestMain(m *testing.M) { os.Exit(withPrograms(m)) }

func withPrograms(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ingress")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	for name, from := range map[string]struct{ dir, pkg string }{
		"countersign":               {"../../../plugin-host", "./cmd/countersign"},
		"countersign-provider-file": {"../../file", "."},
		"countersign-discovery":     {"..", "./cmd/countersign-discovery"},
		// The file provider, whose CA is away while there is a file.
		"countersign-provider-moody": {"../../../e2e", "./testprovider"},
	} {
		if err := testprogram.Build(filepath.Join(dir, name), from.dir, from.pkg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}
