package output_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// federation is a source of a workload's identity and of foreign trust bundles.
type federation struct {
	secret.Map
	t *testing.T
}

func newFederation(t *testing.T) *federation {
	t.Helper()
	f := &federation{t: t}
	f.identity("spiffe://example.org/web")
	return f
}

func (f *federation) identity(id string, dns ...string) {
	f.t.Helper()
	ca := catest.NewCA(catest.Options{Intermediates: 1})
	chain, key := ca.Pair(time.Hour, id, dns...)
	item, err := secret.NewKeyPair("default", "test", chain, key)
	must(f.t, err)
	f.Set("ROOTCA", secret.NewTrustBundle("ROOTCA", "test", ca.Bundle()))
	f.Set("default", item)
}

func (f *federation) foreign(name string) {
	f.Set(name, secret.NewTrustBundle(name, "test", catest.NewCA(catest.Options{}).Bundle()))
}

func startSPIFFE(t *testing.T, dir string, source secret.Source) *running {
	t.Helper()
	return start(t, output.Config{
		Folder: dir, SPIFFE: true, Files: []output.File{}, Federated: map[string]string{"example.com": "partner", "example.net": "later"},
	}, source)
}

// strict parses a file as the standard has it: blocks of the given types, without headers and
// without any text between.
func strict(t *testing.T, text []byte, first, others string) (blocks int) {
	t.Helper()
	want := first
	for len(text) > 0 {
		if !bytes.HasPrefix(text, []byte("-----BEGIN ")) {
			t.Fatal("text between blocks")
		}
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil || block.Type != want || len(block.Headers) > 0 {
			t.Fatalf("block %d is not a plain %s", blocks, want)
		}
		want = others
		blocks++
	}
	return blocks
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

func TestCredentialFolderIsStrict(t *testing.T) {
	source, dir := newFederation(t), t.TempDir()
	source.foreign("partner")
	source.Set("later", nil)
	startSPIFFE(t, dir, source).await(output.Written)
	own, partner := filesecret.TrustBundleFile("example.org"), filesecret.TrustBundleFile("example.com")
	if got := names(t, dir); !slices.Equal(got, []string{filesecret.CredentialBundle, partner, own}) {
		t.Fatal(got)
	}
	if n := strict(t, read(t, dir, filesecret.CredentialBundle), "PRIVATE KEY", "CERTIFICATE"); n != 3 {
		t.Errorf("the credential has %d blocks: want the key, the leaf and the intermediate", n)
	}
	for _, file := range []string{own, partner} {
		if strict(t, read(t, dir, file), "CERTIFICATE", "CERTIFICATE") != 1 {
			t.Errorf("%s holds another number of roots", file)
		}
	}
	info, err := os.Stat(filepath.Join(dir, filesecret.CredentialBundle))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the credential has mode %v", info.Mode())
	}
}

// What this program writes, filesecret serves.
func TestCredentialFolderIsReadBack(t *testing.T) {
	source, dir := newFederation(t), t.TempDir()
	source.foreign("partner")
	startSPIFFE(t, dir, source).await(output.Written)
	files, err := filesecret.New(filesecret.Config{CredentialFolder: dir})
	must(t, err)
	defer func() { must(t, files.Close()) }()
	for name, like := range map[string]string{"default": "default", "ROOTCA": "ROOTCA", "spiffe://example.com": "partner"} {
		want, err := source.Peek(secret.Caller{}, like)
		must(t, err)
		got, err := files.Peek(secret.Caller{}, name)
		must(t, err)
		if got.Version != want.Version {
			t.Errorf("%s is another", name)
		}
	}
}

func TestFileOfTrustDomainFollowsItsFederation(t *testing.T) {
	source, dir := newFederation(t), t.TempDir()
	partner, later := filesecret.TrustBundleFile("example.com"), filesecret.TrustBundleFile("example.net")
	stale := filesecret.TrustBundleFile("gone.example")
	must(t, os.WriteFile(filepath.Join(dir, stale), []byte("old"), 0o600),
		os.WriteFile(filepath.Join(dir, later), []byte("of the last run"), 0o600),
		os.WriteFile(filepath.Join(dir, "other.pem"), []byte("another program's"), 0o600))
	source.foreign("partner")
	source.Set("later", nil)
	r := startSPIFFE(t, dir, source)
	r.await(output.Written)
	has := func(file string, want bool) {
		t.Helper()
		if got := slices.Contains(names(t, dir), file); got != want {
			t.Errorf("%s is there: %v, want %v", file, got, want)
		}
	}
	has(stale, false)
	has(later, true) // its bundle is not held yet, so the last one stays
	has("other.pem", true)
	source.Delete("partner")
	r.await(output.Written)
	has(partner, false)
	source.foreign("partner")
	r.await(output.Written)
	has(partner, true)
	source.foreign("later")
	r.await(output.Written)
	strict(t, read(t, dir, later), "CERTIFICATE", "CERTIFICATE")
}

// Trust domains have up to 255 bytes, as file names have with all that stands around the trust domain.
func TestTrustDomainTooLongForAFileNameKeepsNoOtherOut(t *testing.T) {
	source, dir := newFederation(t), t.TempDir()
	source.foreign("partner")
	source.foreign("long")
	long := strings.Repeat("a", 227)
	r := start(t, output.Config{
		Folder: dir, SPIFFE: true, Files: []output.File{}, Federated: map[string]string{"example.com": "partner", long: "long"},
	}, source)
	if got := r.next(output.Written); got != output.Written {
		t.Fatalf("%s:\n%s", got, r.log)
	}
	want := []string{filesecret.CredentialBundle, filesecret.TrustBundleFile("example.com"), filesecret.TrustBundleFile("example.org")}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("the folder has %q", got)
	}
	if text := r.log.String(); strings.Count(text, "trust_domain="+long) != 1 || !strings.Contains(text, "left out") {
		t.Error(text)
	}
}

// A program that waits for all files learns which write has them.
func TestWriteWithoutBundleIsPartial(t *testing.T) {
	source, dir, events := newFederation(t), t.TempDir(), make(chan output.Event, 10)
	source.Set("partner", nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- output.Run(ctx, output.Config{
			Pair: "default", Bundle: "ROOTCA", Folder: dir, SPIFFE: true, Federated: map[string]string{"example.com": "partner"},
			Reload: func(context.Context, *slog.Logger) error { return nil }, Pause: time.Millisecond,
			Observe: func(e output.Event) { events <- e }, Log: (&logtest.Log{}).Logger(),
		}, source)
	}()
	for _, partial := range []bool{true, false} {
		for _, want := range []output.EventType{output.Written, output.Reloaded} {
			if got := <-events; got.Type != want || got.Partial != partial {
				t.Errorf("got %+v, want %s, partial %v", got, want, partial)
			}
		}
		source.foreign("partner")
	}
	cancel()
	must(t, <-ended)
}

// The files of a write in progress are not taken for bundles of trust domains.
func TestRotationWithdrawsNoTrustDomain(t *testing.T) {
	source, dir := newFederation(t), t.TempDir()
	source.foreign("partner")
	r := startSPIFFE(t, dir, source)
	r.await(output.Written)
	for range 2 {
		source.foreign("partner")
		r.await(output.Written)
	}
	if text := r.log.String(); strings.Contains(text, "no longer federated") {
		t.Error(text)
	}
}

func TestTrustDomainMayChange(t *testing.T) {
	source, dir := newFederation(t), t.TempDir()
	r := startSPIFFE(t, dir, source)
	r.await(output.Written)
	source.identity("spiffe://example.edu/web")
	want := []string{filesecret.CredentialBundle, filesecret.TrustBundleFile("example.edu")}
	for !slices.Equal(names(t, dir), want) { // roots and pair may come in two steps
		r.await(output.Written)
	}
}

func TestCredentialWithoutSPIFFEIDIsRefused(t *testing.T) {
	source, dir := newFederation(t), t.TempDir()
	source.identity("", "www.example.org")
	r := startSPIFFE(t, dir, source)
	r.await(output.WriteFailed)
	if !strings.Contains(r.log.String(), "no SPIFFE ID") || len(names(t, dir)) > 0 {
		t.Error(r.log)
	}
}

func TestCredentialFolderHasNoOtherFiles(t *testing.T) {
	for want, cfg := range map[string]output.Config{
		"folder":    {SPIFFE: true, Pair: "default", Bundle: "ROOTCA"},
		"nor a":     {SPIFFE: true, Folder: "x", Link: "current", Pair: "default", Bundle: "ROOTCA"},
		"own: name": {SPIFFE: true, Folder: "x", Files: output.IstioFiles(), Pair: "default", Bundle: "ROOTCA"},
		"bundle":    {SPIFFE: true, Folder: "x", Pair: "default"},
	} {
		if err := cfg.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
