package secret_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestRootsAreLearnedByEveryWay(t *testing.T) {
	for name, c := range map[string]struct {
		wrap func(*catest.CA) ca.Client
		wait time.Duration // until a change is noticed
	}{
		"watched":               {func(c *catest.CA) ca.Client { return c }, 0},
		"polled":                {func(c *catest.CA) ca.Client { return polled{signOnly{c}, c} }, 5*time.Minute + 31*time.Second},
		"polled for want":       {func(c *catest.CA) ca.Client { return &withoutWatch{c} }, 5*time.Minute + 31*time.Second},
		"from replies":          {func(c *catest.CA) ca.Client { return signOnly{c} }, 37 * time.Minute},
		"from replies for want": {func(c *catest.CA) ca.Client { return &withoutRoots{withoutWatch{c}} }, 37 * time.Minute},
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

func TestRepliesNeedNoRootsWhenAuthorityReportsThem(t *testing.T) {
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
				e.untilRenewal(-time.Second)
				e.ca.Rotate() // a poll would be minutes away: the failed check asks for the roots
				after(5 * time.Second)
				if got := e.held("default"); got.RootFingerprint != e.root() {
					t.Error("the leaf under the new root was not taken")
				}
			})
		})
	}
}

func TestBrokenRootSetIsRefusedAndNextTaken(t *testing.T) {
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

func TestBrokenWatchIsResumedWithBackoff(t *testing.T) {
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

func TestHangingRootSourceIsGivenUp(t *testing.T) {
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
