//go:build e2e && linux

// Package ingress_test holds the gateway's socket of the agent against the real
// countersign-discovery, a real API server and a real Envoy, each a process of its own.
// `make check NAME=step` names the binaries that it does not build in COUNTERSIGN_KUBERNETES and
// COUNTERSIGN_ENVOY.
package ingress_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = programs.Remove()
		os.Exit(code)
	}))
}

// binaries returns the folder with the programs; moody is the file provider whose CA is away
// while there is a certain file.
func binaries(t *testing.T) string {
	t.Helper()
	return programs.Folder(t, "countersign", "countersign-discovery", "countersign-provider-file", "countersign-provider-moody")
}
