package filesecret_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// credential returns the files of a SPIFFE credential folder.
func credential(t *testing.T, authority *catest.CA, id string) files {
	t.Helper()
	chain, key := authority.Pair(time.Hour, id)
	return files{
		filesecret.CredentialBundle:               slices.Concat(key, chain),
		filesecret.TrustBundleFile("example.org"): authority.Bundle().PEM(),
	}
}

func serveFolder(t *testing.T, dir string) *reader {
	t.Helper()
	return serving(t, filesecret.Config{CredentialFolder: dir, Debounce: 5 * time.Millisecond})
}

// known waits until a name is served, or unknown.
func (r *reader) known(name string, want bool) {
	r.t.Helper()
	r.await(name, "that it is there", func(_ *secret.Item, err error) bool {
		return want && err == nil || !want && errors.Is(err, secret.ErrUnknown)
	})
}

func TestCredentialFolderIsServed(t *testing.T) {
	ours, theirs := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	f := credential(t, ours, "spiffe://example.org/web")
	f[filesecret.TrustBundleFile("example.com")] = theirs.Bundle().PEM()
	f["other.pem"] = []byte("not a bundle")
	f[".new-"+filesecret.TrustBundleFile("example.com")] = theirs.Bundle().PEM() // of a writer that was killed
	r := serveFolder(t, mount(t, f).dir)
	if item := r.held("default"); !bytes.Equal(slices.Concat(item.Key, item.Chain), f[filesecret.CredentialBundle]) {
		t.Error("the credential is another")
	}
	for name, want := range map[string]*catest.CA{"ROOTCA": ours, "spiffe://example.org": ours, "spiffe://example.com": theirs} {
		if item := r.held(name); !bytes.Equal(item.Roots, want.Bundle().PEM()) {
			t.Errorf("%s has other roots", name)
		}
	}
	if got := r.Federated(); !slices.Equal(got, []string{"example.com", "example.org"}) {
		t.Error(got)
	}
	for _, name := range []string{"spiffe://example.net", "spiffe://../example.org", "spiffe://", "spiffe://Example.org"} {
		r.fails(name, secret.ErrUnknown)
	}
}

// A domain whose file goes is no longer federated; one whose file comes is.
func TestTrustBundleComesAndGoes(t *testing.T) {
	ours, theirs := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	dir := folder(t, credential(t, ours, "spiffe://example.org/web"))
	r := serveFolder(t, dir)
	const name = "spiffe://example.com"
	r.fails(name, secret.ErrUnknown)
	for range 3 {
		must(t, renameInto(dir, files{filesecret.TrustBundleFile("example.com"): theirs.Bundle().PEM()}, filesecret.TrustBundleFile("example.com")))
		r.known(name, true)
		must(t, os.Remove(at(dir, filesecret.TrustBundleFile("example.com"))))
		r.known(name, false)
	}
	if text := r.log.String(); strings.Contains(text, "invalid") {
		t.Error(text)
	}
}

// The kubelet empties the file of a federation that ended, and other writers leave a link to nothing.
func TestEmptyTrustBundleIsNotFederated(t *testing.T) {
	ours, theirs := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	f := credential(t, ours, "spiffe://example.org/web")
	file := filesecret.TrustBundleFile("example.com")
	f[file] = theirs.Bundle().PEM()
	place := mount(t, f)
	r := serveFolder(t, place.dir)
	const name = "spiffe://example.com"
	without := maps.Clone(f)
	delete(without, file)
	empty := maps.Clone(f)
	empty[file] = nil
	for what, ended := range map[string]files{"empty": empty, "a link to nothing": without} {
		r.known(name, true)
		must(t, place.swap(ended))
		r.known(name, false)
		if got := r.Federated(); !slices.Equal(got, []string{"example.org"}) {
			t.Errorf("%s: federated are %q", what, got)
		}
		must(t, place.swap(f))
	}
	r.known(name, true)
}

// Watchers see a withdrawal and a return without watching again.
func TestWatchOfTrustBundleOutlastsItsFile(t *testing.T) {
	theirs := catest.NewCA(catest.Options{})
	f := credential(t, catest.NewCA(catest.Options{}), "spiffe://example.org/web")
	file := filesecret.TrustBundleFile("example.com")
	f[file] = theirs.Bundle().PEM()
	dir := folder(t, f)
	r := serveFolder(t, dir)
	const name = "spiffe://example.com"
	stop, err := r.Watch(agent, name, func(string) {})
	must(t, err)
	defer stop()
	for range 3 {
		must(t, os.Remove(at(dir, file)))
		r.known(name, false)
		must(t, os.WriteFile(at(dir, file), f[file], 0o600))
		r.known(name, true)
	}
}

func TestWatchedTrustDomainsAreBounded(t *testing.T) {
	dir := folder(t, credential(t, catest.NewCA(catest.Options{}), "spiffe://example.org/web"))
	r := serving(t, filesecret.Config{CredentialFolder: dir, MaxNames: 2})
	for i, name := range []string{"spiffe://a", "spiffe://b", "spiffe://c"} {
		stop, err := r.Watch(agent, name, func(string) {})
		if i == 2 {
			if !errors.Is(err, secret.ErrUnknown) {
				t.Error(err)
			}
			continue
		}
		must(t, err)
		defer stop()
	}
}

// A trust domain whose file goes counts, too, so that the bound may be exceeded.
func TestWithdrawnTrustDomainKeepsTheBound(t *testing.T) {
	f := credential(t, catest.NewCA(catest.Options{}), "spiffe://example.org/web")
	file := filesecret.TrustBundleFile("example.com")
	f[file] = catest.NewCA(catest.Options{}).Bundle().PEM()
	dir := folder(t, f)
	r := serving(t, filesecret.Config{CredentialFolder: dir, MaxNames: 1, Debounce: 5 * time.Millisecond})
	for _, name := range []string{"spiffe://example.com", "spiffe://a"} {
		stop, err := r.Watch(agent, name, func(string) {})
		must(t, err)
		defer stop()
	}
	must(t, os.Remove(at(dir, file)))
	r.known("spiffe://example.com", false)
	if _, err := r.Watch(agent, "spiffe://b", func(string) {}); !errors.Is(err, secret.ErrUnknown) {
		t.Errorf("a further name: %v", err)
	}
}

func TestCredentialRotatesWithoutMixedPair(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	place := mount(t, credential(t, authority, "spiffe://example.org/web"))
	r := serveFolder(t, place.dir)
	for range 20 {
		f := credential(t, authority, "spiffe://example.org/web")
		must(t, place.swap(f))
		r.await("default", "the next credential", func(item *secret.Item, err error) bool {
			return err == nil && bytes.Equal(slices.Concat(item.Key, item.Chain), f[filesecret.CredentialBundle])
		})
	}
	if text := r.log.String(); strings.Contains(text, "invalid key") {
		t.Error(text)
	}
}

// The roots of the workload's own trust domain follow a change of the domain.
func TestOwnRootsFollowTrustDomain(t *testing.T) {
	before, after := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	place := mount(t, credential(t, before, "spiffe://example.org/web"))
	r := serveFolder(t, place.dir)
	chain, key := after.Pair(time.Hour, "spiffe://example.net/web")
	must(t, place.swap(files{
		filesecret.CredentialBundle:               slices.Concat(key, chain),
		filesecret.TrustBundleFile("example.net"): after.Bundle().PEM(),
	}), link(at("..data", filesecret.TrustBundleFile("example.net")), at(place.dir, filesecret.TrustBundleFile("example.net"))))
	r.await("ROOTCA", "the roots of the new domain", func(item *secret.Item, err error) bool {
		return err == nil && bytes.Equal(item.Roots, after.Bundle().PEM())
	})
}

// The CA of the former trust domain must not verify peers of the new one.
func TestRootsOfFormerTrustDomainAreWithdrawn(t *testing.T) {
	before, after := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	dir := folder(t, credential(t, before, "spiffe://example.org/web"))
	r := serveFolder(t, dir)
	chain, key := after.Pair(time.Hour, "spiffe://example.net/web")
	must(t, renameInto(dir, files{filesecret.CredentialBundle: slices.Concat(key, chain)}, filesecret.CredentialBundle))
	r.await("ROOTCA", "that there are none", func(_ *secret.Item, err error) bool { return errors.Is(err, secret.ErrNotReady) })
	r.known("spiffe://example.org", true)
	must(t, renameInto(dir, files{filesecret.TrustBundleFile("example.net"): after.Bundle().PEM()}, filesecret.TrustBundleFile("example.net")))
	r.await("ROOTCA", "the roots of the new domain", func(item *secret.Item, err error) bool {
		return err == nil && bytes.Equal(item.Roots, after.Bundle().PEM())
	})
}

func TestInvalidTrustBundleOfMissingFolderIsNotReadAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := credential(t, catest.NewCA(catest.Options{}), "spiffe://example.org/web")
		f[filesecret.TrustBundleFile("example.com")] = []byte("not a bundle")
		dir := folder(t, f)
		var looks atomic.Int64
		serving(t, filesecret.Config{CredentialFolder: dir, NoEvents: true, Now: func() time.Time {
			if looks.Add(1) > 1000 {
				time.Sleep(time.Hour)
			}
			return time.Now()
		}})
		must(t, os.RemoveAll(dir))
		time.Sleep(time.Minute)
		if n := looks.Load(); n > 1000 {
			t.Errorf("the clock was looked at %d times", n)
		}
	})
}

func TestCredentialFolderExcludesItsNames(t *testing.T) {
	dir := folder(t, credential(t, catest.NewCA(catest.Options{}), "spiffe://example.org/web"))
	_, err := filesecret.New(filesecret.Config{CredentialFolder: dir, Secrets: []filesecret.Spec{{Name: "ROOTCA", Roots: at(dir, "x")}}})
	if err == nil || !strings.Contains(err.Error(), "ROOTCA") {
		t.Error(err)
	}
}

// Each start begins without a folder, as a volume may come later.
func TestCredentialFolderMayComeLater(t *testing.T) {
	dir := at(folder(t, nil), "spiffe")
	r := serveFolder(t, dir)
	r.fails("default", secret.ErrNotReady)
	must(t, os.Mkdir(dir, 0o755), credential(t, catest.NewCA(catest.Options{}), "spiffe://example.org/web").writeTo(dir))
	r.known("default", true)
	r.known("ROOTCA", true)
	r.known("spiffe://example.org", true)
}
