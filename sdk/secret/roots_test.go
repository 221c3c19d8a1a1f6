package secret_test

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// overlap sets how long dropped roots stay.
func overlap(d time.Duration) func(*secret.Config) {
	return func(c *secret.Config) { c.Authorities[0].RootOverlap = &d }
}

// root returns the fingerprint of the one root that the authority tells.
func (e *engine) root() string { return e.ca.Bundle().Fingerprints()[0] }

// serves checks which roots are served.
func (e *engine) serves(want ...string) {
	e.t.Helper()
	slices.Sort(want)
	if got := e.held("ROOTCA").RootFingerprints; !slices.Equal(got, want) {
		e.t.Fatalf("served are %v, want %v\n%s", got, want, e.logged())
	}
}

func TestADroppedRootStaysAsLongAsTheLeafUnderIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		leaf, old := e.held("default"), e.root()
		after(10 * time.Minute)
		e.ca.Rotate()
		e.serves(old, e.root())
		if e.held("default") != leaf {
			t.Error("a changed root made another leaf")
		}
		after(25 * time.Minute)
		e.requests(2) // the rotation by time
		after(leaf.NotAfter.Sub(e.now()) - time.Second)
		e.serves(old, e.root())
		after(2 * time.Second)
		e.serves(e.root())
		if added, removed := e.count(secret.RootAdded, ""), e.count(secret.RootRemoved, ""); added != 2 || removed != 1 {
			t.Errorf("%d roots were told as added, %d as removed", added, removed)
		}
	})
}

func TestADroppedRootStaysForTheOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overlap(5*time.Minute))
		leaf, old := e.held("default"), e.root()
		e.ca.Rotate()
		after(5*time.Minute - time.Second)
		e.serves(old, e.root())
		if e.held("default") != leaf {
			t.Error("the leaf was replaced although peers can verify it")
		}
		after(2 * time.Second)
		e.serves(e.root())
		if got := e.held("default"); got.RootFingerprint != e.root() {
			t.Error("the leaf that no peer can verify was not replaced at once")
		}
		e.requests(2)
	})
}

func TestWithoutOverlapADroppedRootAndItsLeafGoAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overlap(0))
		e.held("default")
		after(time.Second)
		e.ca.Rotate()
		e.serves(e.root())
		if got := e.held("default"); got.RootFingerprint != e.root() {
			t.Error("the leaf that no peer can verify was not replaced at once")
		}
		e.requests(2)
	})
}

func TestARootThatComesBackStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overlap(5*time.Minute))
		e.held("default")
		before := e.ca.Bundle()
		e.ca.Rotate()
		after(time.Minute)
		both := e.ca.Bundle().Union(before)
		e.ca.SetRoots(both)
		after(10 * time.Minute)
		e.serves(both.Fingerprints()...)
		e.requests(1)
	})
}

func TestNoRootOutlivesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := catest.NewCA(catest.Options{CALifetime: time.Hour + 10*time.Minute}).Bundle()
		e := newEngine(t, nil)
		e.held("default")
		current := e.ca.Bundle()
		e.ca.SetRoots(current.Union(short))
		e.serves(current.Union(short).Fingerprints()...)
		after(11 * time.Minute) // it is never dropped, and ends ten minutes after the start
		e.serves(e.ca.Bundle().Filter(current.Contains).Fingerprints()...)
	})
}

func TestTheLastRootIsNotRemovedButExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := catest.NewCA(catest.Options{CALifetime: time.Hour + 10*time.Minute})
		e := newEngine(t, func(c *secret.Config) { c.Authorities[0].Client = short })
		e.held("ROOTCA")
		after(11 * time.Minute)
		e.notReady("ROOTCA")
		if e.status("ROOTCA").ExpiredSince.IsZero() {
			t.Error("the status does not tell")
		}
		after(time.Hour)
		told := 0
		for _, event := range e.events {
			if event.Type == secret.Expired && event.Secret == "ROOTCA" {
				told++
			}
		}
		if told != 1 {
			t.Errorf("the expiry was told %d times", told)
		}
	})
}

func TestRootsAreLearnedByEveryWay(t *testing.T) {
	for name, c := range map[string]struct {
		wrap func(*catest.CA) ca.Client
		wait time.Duration // until a change is noticed
	}{
		"watched":               {func(c *catest.CA) ca.Client { return c }, 0},
		"polled":                {func(c *catest.CA) ca.Client { return polled{signOnly{c}, c} }, 5*time.Minute + 31*time.Second},
		"polled for want":       {func(c *catest.CA) ca.Client { return &withoutWatch{c} }, 5*time.Minute + 31*time.Second},
		"from replies":          {func(c *catest.CA) ca.Client { return signOnly{c} }, 31 * time.Minute},
		"from replies for want": {func(c *catest.CA) ca.Client { return &withoutRoots{withoutWatch{c}} }, 31 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, client(c.wrap))
				old := e.held("default").RootFingerprint
				e.ca.Rotate()
				after(c.wait)
				e.serves(old, e.root())
			})
		})
	}
}

// withoutWatch and withoutRoots have the methods, as a provider's client does, and
// not the abilities.
type withoutWatch struct{ *catest.CA }

func (withoutWatch) WatchRoots(context.Context, func([]byte) error) error { return ca.ErrUnimplemented }

type withoutRoots struct{ withoutWatch }

func (withoutRoots) Roots(context.Context) ([]byte, error) { return nil, ca.ErrUnimplemented }

func TestRepliesNeedNoRootsWhereTheAuthorityTellsThem(t *testing.T) {
	for name, wrap := range map[string]func(*catest.CA) ca.Client{
		"watched": func(c *catest.CA) ca.Client { return c },
		"polled":  func(c *catest.CA) ca.Client { return polled{signOnly{c}, c} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, func(c *secret.Config) {
					c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Break: catest.NoRoots})
					client(wrap)(c)
				})
				e.held("default")
				e.ca.Rotate() // a poll would be minutes away: the failed check asks for the roots
				e.untilRenewal(3 * time.Second)
				if got := e.held("default"); got.RootFingerprint != e.root() {
					t.Error("the leaf under the new root was not taken")
				}
			})
		})
	}
}

func TestTheBundleIsServedBeforeTheLeafThatNeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, client(func(c *catest.CA) ca.Client { return signOnly{c} }))
		e.held("default")
		var mu sync.Mutex
		var order []string
		note := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
			if leaf, err := e.Peek(agent, "default"); err == nil {
				roots, _ := e.Peek(agent, "ROOTCA")
				if !slices.Contains(roots.RootFingerprints, leaf.RootFingerprint) {
					t.Error("a leaf is served whose root is not")
				}
			}
		}
		for _, name := range []string{"default", "ROOTCA"} {
			stop, err := e.Watch(agent, name, note)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
		}
		e.ca.Rotate()
		e.untilRenewal(time.Second)
		if !slices.Equal(order, []string{"ROOTCA", "default"}) {
			t.Errorf("told were %v", order)
		}
	})
}

func TestAChangedRootThatIsNotNeededLeavesEverythingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		leaf, roots := e.held("default"), e.held("ROOTCA")
		e.ca.SetRoots(pki.NewBundle(e.ca.Bundle().Certificates()...)) // the same again
		synctest.Wait()
		if e.held("ROOTCA") != roots {
			t.Error("the same roots are another item")
		}
		e.ca.SetRoots(e.ca.Bundle().Union(catest.NewCA(catest.Options{}).Bundle()))
		if e.held("ROOTCA") == roots || e.held("default") != leaf {
			t.Error("one more root must change the bundle and not the leaf")
		}
		e.requests(1)
	})
}

func TestARootThatWasIssuedAgainKeepsTheLeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overlap(0))
		leaf := e.held("default")
		again := issueAgain(t, e.ca)
		e.ca.SetRoots(again)
		e.serves(again.Fingerprints()...)
		got := e.held("default")
		if got.Version != leaf.Version || got.RootFingerprint != again.Fingerprints()[0] {
			t.Errorf("got %v under the root %s", got, got.RootFingerprint)
		}
		e.requests(1)
	})
}

// issueAgain makes another root certificate of the same name and key.
func issueAgain(t *testing.T, c *catest.CA) *pki.Bundle {
	t.Helper()
	key, err := pki.ParseKey(c.IstioFiles()["ca-key.pem"])
	if err != nil {
		t.Fatal(err)
	}
	root := *c.Bundle().Certificates()[0]
	root.SerialNumber = big.NewInt(7)
	der, err := x509.CreateCertificate(rand.Reader, &root, &root, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	again, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return pki.NewBundle(again)
}

func TestPinnedRootsBoundWhatAnAuthorityMayIntroduce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].PinnedRoots = c.Authorities[0].Client.(*catest.CA).Bundle()
		})
		leaf, pinned := e.held("default"), e.root()
		e.ca.SetRoots(e.ca.Bundle().Union(catest.NewCA(catest.Options{}).Bundle()))
		e.serves(pinned)
		e.ca.Rotate()
		e.serves(pinned)
		if e.count(secret.Failed, "roots") != 1 {
			t.Errorf("events %v", e.events)
		}
		after(leaf.NotAfter.Sub(e.now()) - time.Second)
		e.serves(pinned)
		if e.held("default") != leaf {
			t.Error("a leaf under a root that is not pinned is served")
		}
	})
}

func TestABrokenSetOfRootsIsRefusedAndTheNextIsTaken(t *testing.T) {
	middle := func() *pki.Bundle {
		var above *pki.Bundle
		c := catest.NewCA(catest.Options{Intermediates: 1})
		c.Always(catest.Fault{Break: func(d *catest.Draft) { above = pki.NewBundle(d.Above...) }})
		return bundleOf(c, &above)
	}()
	for name, wrong := range map[string]*pki.Bundle{"empty": nil, "no-root": middle} {
		t.Run(name+".pem", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, nil)
				e.held("default")
				old := e.root()
				before := e.ca.Bundle()
				e.ca.SetRoots(wrong)
				e.serves(old)
				if e.status("ROOTCA").Failure == nil || e.count(secret.Failed, "roots") != 1 {
					t.Error("the status does not tell")
				}
				e.ca.SetRoots(before.Union(catest.NewCA(catest.Options{}).Bundle()))
				synctest.Wait()
				if n := len(e.held("ROOTCA").RootFingerprints); n != 2 || e.status("ROOTCA").Failure != nil {
					t.Errorf("%d roots are served", n)
				}
			})
		})
	}
}

// bundleOf has the authority sign once, so that a fault can see what it has.
func bundleOf(c *catest.CA, above **pki.Bundle) *pki.Bundle {
	key, _ := pki.GenerateKey("")
	id, _ := pki.NewIdentity("spiffe://example.org/web", nil, nil)
	csr, _ := pki.CreateCSR(key, id)
	_, _ = c.CSRSign(context.Background(), ca.SignRequest{CSR: csr})
	return *above
}

// breaking is an authority whose watch breaks until it is healed.
type breaking struct {
	*catest.CA
	mu     sync.Mutex
	err    error
	starts int
}

func (b *breaking) WatchRoots(ctx context.Context, changed func([]byte) error) error {
	b.mu.Lock()
	b.starts++
	err := b.err
	b.mu.Unlock()
	if err != nil {
		return err
	}
	return b.CA.WatchRoots(ctx, changed)
}

func TestAWatchThatBreaksIsTakenUpWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &breaking{err: ca.ErrUnavailable}
		e := newEngine(t, client(func(c *catest.CA) ca.Client { b.CA = c; return b }))
		e.held("default") // replies tell the root, too
		after(5 * time.Minute)
		if b.starts < 5 || b.starts > 15 {
			t.Errorf("%d tries in five minutes", b.starts)
		}
		b.mu.Lock()
		b.err = nil
		b.mu.Unlock()
		after(75 * time.Second)
		old := e.root()
		e.ca.Rotate()
		e.serves(old, e.root())
	})
}

func TestARootAnswerThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, client(func(c *catest.CA) ca.Client { return polled{signOnly{c}, hanging{}} }))
		e.held("default")
		after(31 * time.Second)
		if f := e.status("ROOTCA").Failure; f == nil || f.Reason != "deadline exceeded" {
			t.Errorf("failure %+v", f)
		}
	})
}

type hanging struct{}

func (hanging) Roots(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }

func TestABundleOfSeveralAuthoritiesHoldsTheRootsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := &breaking{CA: catest.NewCA(catest.Options{}), err: ca.ErrUnavailable}
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities = append(c.Authorities, secret.Authority{Name: "other", Client: other})
			c.Secrets[1].Authorities = []string{"test", "other"}
		})
		e.serves(e.root()) // one that is away does not hold up the other
		other.mu.Lock()
		other.err = nil
		other.mu.Unlock()
		e.Kick("other")
		after(2 * time.Second)
		e.serves(e.root(), other.Bundle().Fingerprints()[0])
	})
}

func TestReplicasThatDisagreeAreNotAskedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			overlap(0)(c)
			client(func(c *catest.CA) ca.Client { return &rotating{c} })(c)
			again := c.Secrets[0]
			again.Name, again.Identity = "again", identity(t, "spiffe://example.org/again")
			c.Secrets = append(c.Secrets, again)
		})
		after(5 * time.Minute)
		if n := len(e.ca.Requests()); n > 40 {
			t.Errorf("%d requests in five minutes", n)
		}
	})
}

// rotating has a new root for every request, so that each leaf loses the other's.
type rotating struct{ c *catest.CA }

func (r *rotating) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	r.c.Rotate()
	return r.c.CSRSign(ctx, req)
}

// late answers with what was true when it was asked.
type late struct {
	*catest.CA
	hold chan struct{}
}

func (l *late) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	reply, err := l.CA.CSRSign(ctx, req)
	if l.hold != nil {
		<-l.hold
	}
	return reply, err
}

func TestAReplyFromBeforeARotationDoesNotBringTheOldRootBackForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &late{hold: make(chan struct{})}
		e := newEngine(t, client(func(c *catest.CA) ca.Client { l.CA = c; return l }))
		synctest.Wait()
		old := e.root()
		after(time.Second)
		e.ca.Rotate()
		e.serves(e.root()) // no leaf is held that the old one would stay for
		close(l.hold)
		leaf := e.held("default")
		e.serves(old, e.root())
		after(leaf.NotAfter.Sub(e.now()) + time.Second)
		e.serves(e.root())
	})
}

func TestWrongSettingsAreRefusedBeforeAnythingStarts(t *testing.T) {
	for name, change := range map[string]func(*secret.Config){
		"a secret without a name":         func(c *secret.Config) { c.Secrets[0].Name = "" },
		"a name twice":                    func(c *secret.Config) { c.Secrets[1].Name = "default" },
		"an unknown kind":                 func(c *secret.Config) { c.Secrets[0].Kind = 0 },
		"an unknown authority":            func(c *secret.Config) { c.Secrets[0].Authorities = []string{"x"} },
		"two authorities for a key":       func(c *secret.Config) { c.Secrets[0].Authorities = []string{"test", "test"} },
		"a bundle of nobody":              func(c *secret.Config) { c.Secrets[1].Authorities = nil },
		"no identity":                     func(c *secret.Config) { c.Secrets[0].Identity = pki.Identity{} },
		"an unknown key type":             func(c *secret.Config) { c.Secrets[0].KeyType = "rsa-1024" },
		"a negative lifetime":             func(c *secret.Config) { c.Secrets[0].TTL = -1 },
		"a ratio of one":                  func(c *secret.Config) { c.Secrets[0].RenewRatio = 1 },
		"a negative ratio":                func(c *secret.Config) { c.Secrets[0].RenewRatio = -0.5 },
		"a negative jitter":               func(c *secret.Config) { c.Secrets[0].RenewJitter = -0.5 },
		"an authority without a name":     func(c *secret.Config) { c.Authorities[0].Name = "" },
		"an authority twice":              func(c *secret.Config) { c.Authorities = append(c.Authorities, c.Authorities[0]) },
		"an authority without a client":   func(c *secret.Config) { c.Authorities[0].Client = nil },
		"a negative overlap":              overlap(-1),
		"a negative interval":             func(c *secret.Config) { c.Authorities[0].RootInterval = -1 },
		"a negative time for the request": func(c *secret.Config) { c.Authorities[0].Timeout = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			config := secret.Config{
				Authorities: []secret.Authority{{Name: "test", Client: catest.NewCA(catest.Options{})}},
				Secrets: []secret.Spec{
					{Name: "default", Kind: secret.KeyPair, Authorities: []string{"test"}, Identity: identity(t, "spiffe://example.org/web")},
					{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
				},
			}
			change(&config)
			if m, err := secret.New(config); err == nil {
				m.Close()
				t.Error("it was accepted")
			}
		})
	}
}
