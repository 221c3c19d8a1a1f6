package revocation_test

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/revocation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// reload replaces the bundles and returns how many pushes that made.
func (b *bundle) reload(specs ...revocation.Bundle) int {
	b.t.Helper()
	synctest.Wait()
	before := b.pushed()
	must(b.t, b.set.Reload(specs))
	synctest.Wait()
	return b.pushed() - before
}

func (b *bundle) pushed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pushes
}

func TestReloadAddsAndRemovesLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		lists := ca.CRLs(catest.CRL{})
		b := serve(t, ca, nil, lists...)
		if n := b.reload(); n != 1 {
			t.Errorf("%d pushes for the removal", n)
		}
		b.has("without an entry")
		if n := b.reload(revocation.Bundle{Name: "ROOTCA", Files: []string{b.file}}); n != 1 {
			t.Errorf("%d pushes for the lists", n)
		}
		b.has("with one again", lists...)
		second := ca.CRLs(catest.CRL{Number: 2})
		b.write(second...)
		passes(0)
		b.has("the file is followed", second...)
	})
}

func TestReloadWithoutBundlesAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, shelf := catest.NewCA(catest.Options{}), secrettest.New()
		shelf.Put(secret.NewTrustBundle("ROOTCA", "test", ca.Bundle()))
		b := &bundle{t: t, file: t.TempDir() + "/crl.pem"}
		set, err := revocation.New(revocation.Config{NoEvents: true, Poll: poll, Log: b.log.Logger()}, shelf)
		must(t, err)
		defer set.Close()
		b.Source = set.Over(shelf)
		lists := ca.CRLs(catest.CRL{})
		b.write(lists...)
		b.has("nothing is configured")
		must(t, set.Reload([]revocation.Bundle{{Name: "ROOTCA", Files: []string{b.file}}}))
		b.has("at once", lists...)
	})
}

func TestReloadKeepsWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		second := ca.CRLs(catest.CRL{Number: 2})
		b := serve(t, ca, nil, second...)
		must(t, os.Remove(b.file))
		if n := b.reload(revocation.Bundle{Name: "ROOTCA", Files: []string{b.file}, LeafOnly: true}); n != 1 {
			t.Errorf("%d pushes", n)
		}
		b.has("the file is gone", second...)
		if item, err := b.Peek(agent, "ROOTCA"); err != nil || !item.LeafCRLOnly {
			t.Errorf("leaf_only is not taken over: %v", err)
		}
		b.write(ca.CRLs(catest.CRL{Number: 1})...)
		b.reload(revocation.Bundle{Name: "ROOTCA", Files: []string{b.file}})
		b.has("an older list", second...)
		b.fails("an older list", "went back")
	})
}

func TestReloadOfTheSameChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, p := catest.NewCA(catest.Options{}), new(publisher)
		lists := ca.CRLs(catest.CRL{})
		p.says(nil, lists...)
		b := publish(t, ca, p, nil)
		before := p.calls.Load()
		feed := revocation.Feed{Name: "vault", Follow: revocation.Poll(revocation.Polled{Source: p})}
		if n := b.reload(revocation.Bundle{Name: "ROOTCA", Feeds: []revocation.Feed{feed}}); n != 0 || p.calls.Load() != before {
			t.Errorf("%d pushes, %d calls", n, p.calls.Load()-before)
		}
		// A bundle that changes keeps the replies of its feeds, and asks them again.
		if n := b.reload(revocation.Bundle{Name: "ROOTCA", Feeds: []revocation.Feed{feed}, Stale: revocation.Drop}); n != 0 || p.calls.Load() != before+1 {
			t.Errorf("%d pushes, %d calls", n, p.calls.Load()-before)
		}
		b.has("it is kept", lists...)
		b.reload()
		if n := p.asked(time.Hour); n > 0 {
			t.Errorf("a feed that was removed is asked %d times", n)
		}
	})
}

func TestWrongReloadChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		lists := ca.CRLs(catest.CRL{})
		b := serve(t, ca, nil, lists...)
		if err := b.set.Reload([]revocation.Bundle{{Name: "ROOTCA"}}); err == nil {
			t.Error("it is taken")
		}
		b.has("after a wrong one", lists...)
		b.set.Close()
		b.reload()
		b.has("after the end", lists...)
	})
}
