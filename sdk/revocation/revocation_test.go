package revocation_test

import (
	"bytes"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/revocation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var agent secret.Caller

// bundle is ROOTCA with lists, in a synctest bubble: the clock moves while the test sleeps.
type bundle struct {
	secret.Source
	t      *testing.T
	set    *revocation.Set
	shelf  *secrettest.Source
	file   string
	pushes int
	events []secret.Event
	mu     sync.Mutex
	log    logtest.Log
}

const poll = 10 * time.Second

// serve serves the CA's roots, with lists from a file that holds these.
func serve(t *testing.T, ca *catest.CA, change func(*revocation.Bundle), lists ...[]byte) *bundle {
	t.Helper()
	return serveWith(t, ca, func(c *revocation.Config) {
		if change != nil {
			change(&c.Bundles[0])
		}
	}, lists...)
}

func serveWith(t *testing.T, ca *catest.CA, change func(*revocation.Config), lists ...[]byte) *bundle {
	t.Helper()
	b := &bundle{t: t, shelf: secrettest.New(), file: filepath.Join(t.TempDir(), "crl.pem")}
	b.roots(ca)
	if lists != nil {
		b.write(lists...)
	}
	cfg := revocation.Config{
		Bundles: []revocation.Bundle{{Name: "ROOTCA", Files: []string{b.file}}}, NoEvents: true, Poll: poll, Observe: b.observe, Log: b.log.Logger(),
	}
	change(&cfg)
	set, err := revocation.New(cfg, b.shelf)
	must(t, err)
	t.Cleanup(set.Close)
	b.set, b.Source = set, set.Over(b.shelf)
	_, err = b.Watch(agent, "ROOTCA", func(string) { b.mu.Lock(); b.pushes++; b.mu.Unlock() })
	must(t, err)
	return b
}

func (b *bundle) observe(e secret.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *bundle) roots(cas ...*catest.CA) {
	var all *pki.Bundle
	for _, ca := range cas {
		all = all.Union(ca.Bundle())
	}
	b.shelf.Put(secret.NewTrustBundle("ROOTCA", "test", all))
}

func (b *bundle) write(lists ...[]byte) {
	b.t.Helper()
	must(b.t, os.WriteFile(b.file, bytes.Join(lists, nil), 0o600))
}

// passes lets time go by, and the files be read.
func passes(d time.Duration) {
	time.Sleep(d + poll)
	synctest.Wait()
}

// has checks which lists are served; with none, that the bundle is served without any.
func (b *bundle) has(what string, lists ...[]byte) {
	b.t.Helper()
	item, err := b.Peek(agent, "ROOTCA")
	if err != nil {
		b.t.Errorf("%s: %v", what, err)
		return
	}
	if got, want := len(item.CRLs), len(bytes.Join(lists, nil)); got != want {
		b.t.Errorf("%s: %d bytes of lists, want %d\n%s", what, got, want, &b.log)
	}
	for _, list := range lists {
		if !bytes.Contains(item.CRLs, list) {
			b.t.Errorf("%s: a list is not served", what)
		}
	}
}

func (b *bundle) state() *secret.Revocation {
	b.t.Helper()
	all := b.set.Complete([]secret.Status{{Name: "ROOTCA", Kind: "trust-bundle", Held: true}, {Name: "other", Kind: "trust-bundle"}})
	if all[1].Revocation != nil {
		b.t.Error("another bundle has lists")
	}
	return all[0].Revocation
}

func (b *bundle) lacks(what string, words ...string) {
	b.t.Helper()
	got := strings.Join(b.state().Without, "; ")
	for _, word := range words {
		if !strings.Contains(got, word) {
			b.t.Errorf("%s: CAs without a list are %q, want %q in it", what, got, word)
		}
	}
	if len(words) == 0 && got != "" {
		b.t.Errorf("%s: CAs without a list are %q", what, got)
	}
}

func (b *bundle) fails(what, words string) {
	b.t.Helper()
	f := b.state().Failure
	if (words == "") != (f == nil) || f != nil && !strings.Contains(f.Text, words) {
		b.t.Errorf("%s: the failure is %+v, want %q", what, f, words)
	}
}

func (b *bundle) says(words string) {
	b.t.Helper()
	if !strings.Contains(b.log.String(), words) {
		b.t.Errorf("the log does not say %q:\n%s", words, &b.log)
	}
}

var must = fatal.If

func TestChangedListIsPushedWithRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		first, second := ca.CRLs(catest.CRL{Number: 1}), ca.CRLs(catest.CRL{Number: 2, Revoked: []*big.Int{big.NewInt(7)}})
		b := serve(t, ca, nil, first...)
		b.has("the first", first...)
		bare, _ := b.shelf.Peek(agent, "ROOTCA")
		one, _ := b.Peek(agent, "ROOTCA")
		again, _ := b.Peek(agent, "ROOTCA")
		if one != again || one.Version == bare.Version {
			t.Error("the item with lists is made anew, or has the version of the one without")
		}
		b.write(second...)
		passes(0)
		b.has("the second", second...)
		two, _ := b.Peek(agent, "ROOTCA")
		if two.Version == one.Version || !bytes.Equal(two.Roots, one.Roots) || b.pushes != 1 {
			t.Errorf("versions %s and %s, %d pushes", one.Version, two.Version, b.pushes)
		}
		passes(time.Minute)
		if b.pushes != 1 {
			t.Errorf("%d pushes where nothing changed", b.pushes)
		}
		if s := b.state(); len(s.Lists) != 1 || s.Lists[0].Revoked != 1 || s.Lists[0].Number != "2" || !s.First().Equal(s.Lists[0].NextUpdate) {
			t.Errorf("the state is %+v", s)
		}
		b.lacks("all is well")
		b.fails("all is well", "")
	})
}

// It has the name of the CA.
func TestListThatNoCAOfBundleSignedIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, other := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
		good := ca.CRLs(catest.CRL{Number: 1})
		b := serve(t, ca, nil, good...)
		b.write(other.CRLs(catest.CRL{Number: 2})...)
		passes(0)
		b.has("a forged one", good...)
		b.fails("a forged one", "is not signed by the CA of that name")
		if len(b.events) != 1 || b.events[0].Reason != "crl" || b.events[0].Secret != "ROOTCA" {
			t.Errorf("the events are %+v", b.events)
		}
		b.write(good...)
		passes(0)
		b.fails("the good one again", "")
	})
}

func TestNumberOfListMustNotGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		old, later := ca.CRLs(catest.CRL{Number: 4}), ca.CRLs(catest.CRL{Number: 5})
		b := serve(t, ca, nil, later...)
		b.write(old...)
		passes(0)
		b.has("an older one", later...)
		b.fails("an older one", "went back from number 5 to 4")
	})
}

func TestLastGoodListOutlivesFileThatIsBadOrGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		good := ca.CRLs(catest.CRL{})
		b := serve(t, ca, nil, good...)
		b.write([]byte("-----BEGIN X509 CRL-----\nnone"))
		passes(0)
		b.has("malformed", good...)
		b.fails("malformed", "is malformed: its END line is missing")
		must(t, os.Remove(b.file))
		passes(0)
		b.has("gone", good...)
		b.fails("gone", "no such file")
		b.says("keeps_the_last=true")
		if b.pushes != 0 {
			t.Errorf("%d pushes where nothing changed", b.pushes)
		}
	})
}

// Envoy refuses all peers of a CA whose list has expired: that is what "keep" is for.
func TestExpiredListIsKeptAndAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		b := serve(t, ca, nil, ca.CRLs(catest.CRL{})...)
		list, _ := b.Peek(agent, "ROOTCA")
		passes(30 * time.Minute)
		if strings.Contains(b.log.String(), "ends soon") {
			t.Error("it is announced when half of its life is left")
		}
		passes(25 * time.Minute)
		passes(time.Minute)
		b.says("a revocation list ends soon and has no successor")
		if n := strings.Count(b.log.String(), "ends soon"); n != 1 {
			t.Errorf("it is announced %d times", n)
		}
		b.lacks("before its end")
		passes(10 * time.Minute)
		b.has("expired", list.CRLs)
		b.lacks("expired", "catest root", "ended at")
		b.says("its peers are refused")
		next := ca.CRLs(catest.CRL{Number: 1})
		b.write(next...)
		passes(0)
		b.has("the next", next...)
		b.lacks("the next")
		b.says("every CA of the trust bundle has a current revocation list")
	})
}

func TestExpiredListIsDroppedIfOperatorPrefersThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		b := serve(t, ca, func(b *revocation.Bundle) { b.Stale = revocation.Drop }, ca.CRLs(catest.CRL{})...)
		passes(2 * time.Hour)
		b.has("expired")
		if s := b.state(); !s.Dropped || b.pushes != 1 {
			t.Errorf("the state is %+v after %d pushes", s, b.pushes)
		}
		b.says("no certificate is checked for revocation")
		next := ca.CRLs(catest.CRL{Number: 1})
		b.write(next...)
		passes(0)
		b.has("the next", next...)
		if b.pushes != 2 || b.state().Dropped {
			t.Errorf("%d pushes", b.pushes)
		}
	})
}

func TestBundleThatNeverHadListIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		b := serve(t, ca, nil)
		if _, err := b.Peek(agent, "ROOTCA"); !errors.Is(err, secret.ErrNotReady) || !strings.Contains(err.Error(), "crl.pem") {
			t.Errorf("got %v, want one that names the file", err)
		}
		status := b.set.Complete([]secret.Status{{Name: "ROOTCA", Kind: "trust-bundle", Held: true}})
		if status[0].Held {
			t.Error("the status shows it as held")
		}
		lists := ca.CRLs(catest.CRL{})
		b.write(lists...)
		passes(0)
		b.has("the first list", lists...)
		if b.pushes != 1 {
			t.Errorf("%d pushes", b.pushes)
		}
	})
}

func TestBundleThatNeverHadListIsServedIfOperatorPrefersThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serve(t, catest.NewCA(catest.Options{}), func(b *revocation.Bundle) { b.Stale = revocation.Drop })
		b.has("no list")
	})
}

func TestListFromFutureWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		now := ca.CRLs(catest.CRL{Number: 1})
		later := ca.CRLs(catest.CRL{Number: 2, ThisUpdate: time.Now().Add(5 * time.Minute)})
		b := serve(t, ca, nil, append(now, later...)...)
		b.has("before it begins", now...)
		passes(5 * time.Minute)
		b.has("once it has begun", later...)
	})
}

// Roots and lists change in one push; a new root has no list yet, which the status shows.
func TestListsFollowRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
		first, second := old.CRLs(catest.CRL{}), next.CRLs(catest.CRL{})
		b := serve(t, old, nil, first...)
		b.roots(old, next)
		b.has("at once", first...)
		synctest.Wait()
		b.lacks("a root without a list", "has none")
		b.write(append(first, second...)...)
		passes(0)
		b.has("both", append(first, second...)...)
		b.lacks("both")
		b.roots(next)
		synctest.Wait()
		b.has("the first root gone", second...)
	})
}

// withIntermediate returns an item of a key pair whose chain has the CA's intermediate.
func withIntermediate(authority *catest.CA) *secret.Item {
	chain, _ := authority.Pair(time.Hour, "spiffe://example.org/web")
	return &secret.Item{Name: "default", Kind: secret.KeyPair, Chain: chain}
}

func TestIntermediateOfOwnChainNeedsListToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{Intermediates: 1})
		lists := ca.CRLs(catest.CRL{})
		b := serve(t, ca, func(b *revocation.Bundle) { b.Chains = []string{"default"} }, lists[0])
		b.lacks("nothing is known of an intermediate")
		b.shelf.Put(withIntermediate(ca))
		synctest.Wait()
		b.lacks("only the root's list", "catest intermediate 1", "has none")
		b.write(lists...)
		passes(0)
		b.has("both", lists...)
		b.lacks("both")
	})
}

func TestRootNeedsNoListIfOnlyLeavesOfOthersAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{Intermediates: 1})
		lists := ca.CRLs(catest.CRL{})
		certs, err := pki.ParseCertificates(withIntermediate(ca).Chain)
		must(t, err)
		b := serve(t, ca, func(b *revocation.Bundle) { b.LeafOnly = true }, lists[1], pki.EncodeCertificates(certs[1:]))
		b.has("the intermediate is in the file", lists[1])
		b.lacks("leaves only")
		if item, _ := b.Peek(agent, "ROOTCA"); !item.LeafCRLOnly {
			t.Error("the item does not say so")
		}
		b.write([]byte("no list"))
		passes(0)
		b.has("the file is malformed, and its last list of the intermediate still counts", lists[1])
	})
}

// A certificate beside the lists vouches for nothing unless it chains to a root of the bundle.
func TestCAInFileThatNoRootSignedDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, other := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{Intermediates: 1})
		lists := ca.CRLs(catest.CRL{})
		certs, err := pki.ParseCertificates(withIntermediate(other).Chain)
		must(t, err)
		b := serve(t, ca, nil, lists[0], other.CRLs(catest.CRL{})[1], pki.EncodeCertificates(certs[1:]))
		b.has("a stranger's list", lists[0])
		b.says("no CA in the trust bundle has that name")
		b.fails("a list of an unknown CA is not the bundle's fault", "")
	})
}

func TestListsAreForConfiguredBundlesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		b := serve(t, ca, nil, ca.CRLs(catest.CRL{})...)
		other := secret.NewTrustBundle("other", "test", ca.Bundle())
		b.shelf.Put(other)
		if got, err := b.Peek(agent, "other"); got != other || err != nil {
			t.Errorf("another bundle is changed: %v, %v", got, err)
		}
	})
}

func TestEndedWatchIsNotNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		b := serve(t, ca, nil, ca.CRLs(catest.CRL{Number: 1})...)
		stop, err := b.Watch(agent, "ROOTCA", func(string) { t.Error("notified after its end") })
		must(t, err)
		stop()
		stop()
		b.write(ca.CRLs(catest.CRL{Number: 2})...)
		passes(0)
		if b.pushes != 1 {
			t.Errorf("%d pushes to the one that still watches", b.pushes)
		}
	})
}

func TestWrongSettingsAreRefused(t *testing.T) {
	for want, bundles := range map[string][]revocation.Bundle{
		"without a name":   {{Files: []string{"f"}}},
		"name their files": {{Name: "ROOTCA"}},
		"use keep or":      {{Name: "ROOTCA", Files: []string{"f"}, Stale: "perhaps"}},
		"twice":            {{Name: "ROOTCA", Files: []string{"f"}}, {Name: "ROOTCA", Files: []string{"g"}}},
	} {
		if _, err := revocation.New(revocation.Config{Bundles: bundles}, secrettest.New()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
