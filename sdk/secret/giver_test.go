package secret_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	givenID   = "spiffe://example.org/web"
	givenLife = time.Hour
)

// giver is an authority that makes the keys.
type giver struct {
	t    *testing.T
	root *certtest.Pair

	mu    sync.Mutex
	pair  *secret.Item
	err   error
	asked int
	slow  time.Duration
}

// put makes the newest key pair, overdue after that time.
func (g *giver) put(overdue time.Duration) {
	g.t.Helper()
	leaf := g.root.Leaf(g.t, givenLife, givenID)
	key, err := pki.EncodeKey(leaf.Key)
	if err != nil {
		g.t.Fatal(err)
	}
	g.set(&secret.Item{
		Kind: secret.KeyPair, Chain: pki.EncodeCertificates(pki.NewBundle(leaf.Cert).Certificates()), Key: key,
		Fingerprint: pki.Fingerprint(leaf.Cert), RenewAt: time.Now().Add(overdue),
	}, nil)
}

func (g *giver) set(pair *secret.Item, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pair, g.err = pair, err
}

// newest returns the key pair that it gives, and how often it was asked.
func (g *giver) newest() (*secret.Item, int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pair, g.asked
}

// key returns that of the newest key pair.
func (g *giver) key() string {
	pair, _ := g.newest()
	return string(pair.Key)
}

// swap gives the newest certificate with that key.
func (g *giver) swap(key string) {
	pair, _ := g.newest()
	other := *pair
	other.Key = []byte(key)
	g.set(&other, nil)
}

func (g *giver) delay(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slow = d
}

func (g *giver) Give(ctx context.Context, _ string) (*secret.Item, []byte, error) {
	g.mu.Lock()
	g.asked++
	pair, err, slow := g.pair, g.err, g.slow
	g.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	return pair, pki.NewBundle(g.root.Cert).PEM(), err
}

func (g *giver) CSRSign(context.Context, ca.SignRequest) (ca.Certificate, error) {
	g.t.Error("it was asked to sign")
	return ca.Certificate{}, ca.ErrUnimplemented
}

// given starts an engine whose "default" is given by "test".
func given(t *testing.T) (*engine, *giver) {
	t.Helper()
	g := &giver{t: t, root: certtest.Root(t)}
	g.put(20 * time.Minute)
	e := newEngine(t, func(c *secret.Config) {
		c.Authorities[0].Client, c.Authorities[0].AcceptLongerTTL = g, new(true)
		id, err := pki.NewIdentity(givenID, []string{"server"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Secrets[0].Identity = id
	})
	return e, g
}

func TestGivenKeyPairIsServedWithItsKeyAndRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, g := given(t)
		item := e.held("default")
		if pair, _ := g.newest(); string(item.Key) != g.key() || !item.RenewAt.Equal(pair.RenewAt) || item.Authority != "test" {
			t.Errorf("%s, renewed at %s", item, item.RenewAt)
		}
		e.serves(pki.Fingerprint(g.root.Cert))
		g.put(20 * time.Minute)
		e.Kick("test")
		if again := e.held("default"); string(again.Key) != g.key() {
			t.Error("the successor is not served")
		}
	})
}

func TestKickWithoutASuccessorDoesNotFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, g := given(t)
		first := e.held("default")
		e.Kick("test")
		after(time.Second)
		newest, _ := g.newest()
		g.set(newest, ca.Errorf(ca.Denied, "not today"))
		e.Kick("test")
		after(time.Minute)
		if _, asked := g.newest(); e.held("default") != first || e.count(secret.Failed, "denied") != 0 || e.status("default").Failure != nil || asked > 4 {
			t.Errorf("asked %d times\n%s", asked, e.logged())
		}
		after(20 * time.Minute) // now one is needed
		if s := e.status("default"); s.Failure == nil || s.Failure.Reason != "denied" || e.held("default") != first {
			t.Errorf("%+v", s.Failure)
		}
	})
}

// A key pair that comes while another is on its way is not forgotten.
func TestKickDuringAnAttemptCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, g := given(t)
		e.held("default")
		g.delay(time.Second)
		g.put(20 * time.Minute)
		e.Kick("test")
		after(500 * time.Millisecond)
		g.put(20 * time.Minute)
		e.Kick("test")
		after(5 * time.Second)
		if string(e.held("default").Key) != g.key() {
			t.Errorf("the last one is not served\n%s", e.logged())
		}
	})
}

func TestOverdueKeyPairIsBetterThanNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, g := given(t)
		g.put(-time.Minute)
		if err := e.Release(agent, "default"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Get(t.Context(), agent, "default"); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if s := e.status("default"); s.Failure == nil || !strings.Contains(s.Failure.Text, "no successor") || !s.Held {
			t.Errorf("%+v", s)
		}
	})
}

// Settings draw the renewal of what a CA signed, not of what is given.
func TestReloadLeavesTheRenewalOfAGivenKeyPair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, g := given(t)
		first := e.held("default")
		id, _ := pki.NewIdentity(givenID, []string{"server"}, nil)
		err := e.Reload([]secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Authorities: []string{"test"}, Identity: id, TTL: ttl, RenewRatio: 0.9},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
		}, []secret.Authority{{Name: "test", Client: g, AcceptLongerTTL: new(true)}})
		if err != nil {
			t.Fatal(err)
		}
		after(15 * time.Minute)
		if item := e.held("default"); !item.RenewAt.Equal(first.RenewAt) || e.status("default").Failure != nil {
			t.Errorf("renewed at %s, %+v", item.RenewAt, e.status("default").Failure)
		}
	})
}

func TestUnusableGiverIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*giver)
		want   string
	}{
		"nothing":     {func(g *giver) { g.set(nil, nil) }, "no key pair"},
		"an error":    {func(g *giver) { g.set(nil, errors.New("a fault")) }, "a fault"},
		"no key":      {func(g *giver) { g.swap("") }, `"key"`},
		"another key": {func(g *giver) { last := g.key(); g.put(time.Hour); g.swap(last) }, `"key"`},
		"silence":     {func(g *giver) { g.delay(time.Hour) }, "no answer within"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, g := given(t)
				e.held("default")
				c.change(g)
				if err := e.Release(agent, "default"); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), 40*time.Second)
				defer stop()
				if item, err := e.Get(ctx, agent, "default"); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, %v", item, err)
				}
			})
		})
	}
}
