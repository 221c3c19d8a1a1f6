package provider_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// install puts an executable into a new folder, and returns both paths.
func install(t *testing.T, name string) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	path = filepath.Join(dir, name)
	must(t, os.WriteFile(path, []byte("#!/bin/sh\necho \"$@\"\n"), 0o700))
	return dir, path
}

func TestProgramsOutsideRepositoryAreFoundOnPath(t *testing.T) {
	dir, path := install(t, "countersign-provider-acme")
	t.Chdir(t.TempDir())
	t.Setenv("COUNTERSIGN_PROGRAMS", "")
	t.Setenv("PATH", dir)
	if got := testkit.Program(t, "countersign-provider-acme"); got != path {
		t.Errorf("got %s, want %s", got, path)
	}
	other, named := install(t, "countersign-provider-acme")
	t.Setenv("COUNTERSIGN_PROGRAMS", other)
	if got := testkit.Program(t, "countersign-provider-acme"); got != named {
		t.Errorf("got %s, want the one of COUNTERSIGN_PROGRAMS, %s", got, named)
	}
}

func TestRunReturnsTheOutput(t *testing.T) {
	dir, _ := install(t, "acme")
	t.Setenv("COUNTERSIGN_PROGRAMS", dir)
	if got := testkit.Run(t, "acme", "hello", "there"); got != "hello there\n" {
		t.Errorf("got %q", got)
	}
}

func TestCheckHoldsReplyToItsRequest(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	req, key := testkit.Request(t, "spiffe://example.org/web", "web.example.org")
	reply, err := authority.CSRSign(t.Context(), req)
	must(t, err)
	testkit.Passes(t, reply, testkit.Check(t, req, key))
	_, other := testkit.Request(t, "spiffe://example.org/web", "web.example.org")
	check := testkit.Check(t, req, other)
	check.Roots = authority.Bundle()
	if _, err := check.Chain(reply.Chain); err == nil {
		t.Error("a reply for another key passes")
	}
	testkit.Fails(t, ca.Errorf(ca.Denied, "no entry for web"), "a-token-of-twenty-bytes", ca.ErrDenied, "no entry")
}
