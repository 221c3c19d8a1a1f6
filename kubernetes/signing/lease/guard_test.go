package lease

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func sign(ctx context.Context, l *Lease, o *countingCA) error {
	_, err := l.Client(o).CSRSign(ctx, ca.SignRequest{})
	return err
}

// calling calls the CA without a look at its context.
func calling(o *countingCA, idle *atomic.Bool) func(context.Context, *replica) {
	return func(_ context.Context, r *replica) {
		for !idle.Load() {
			_ = sign(context.Background(), r.Lease, o)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func TestOnlyTheLeaderCallsTheCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := two(t, untilEnd)
		o := &countingCA{}
		if err := sign(t.Context(), a.Lease, o); err != nil || o.calls != 1 {
			t.Errorf("the leader: %v, %d calls", err, o.calls)
		}
		if err := sign(t.Context(), b.Lease, o); ca.ReasonFor(err) != ca.Unavailable || o.calls != 1 {
			t.Errorf("the follower: %v, %d calls", err, o.calls)
		}
	})
}

func TestNoReplicaCallsTheCAWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &countingCA{}
		var idle atomic.Bool
		s := newAPIServer()
		a := s.replica(t, "a", calling(o, &idle))
		waitFor(t, time.Second, "a calls", func() bool { return o.count() > 0 })
		b := s.replica(t, "b", untilEnd)
		a.set(true, false)
		b.set(true, false)
		time.Sleep(12 * time.Second) // the last renewal was before
		synctest.Wait()
		before := o.count()
		time.Sleep(time.Hour)
		synctest.Wait()
		if now := o.count(); now != before || b.is() {
			t.Errorf("%d calls; b leads: %t", now-before, b.is())
		}
		idle.Store(true)
		a.set(false, false)
		b.set(false, false)
		waitFor(t, 30*time.Second, "b leads", b.is)
	})
}

// A suspended machine wakes up, and nothing of the program has run yet: no timer, no elector.
func TestJumpOfTheClockEndsTheTermBeforeAnythingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer().replica(t, "a", untilEnd)
		waitFor(t, time.Second, "a leads", a.is)
		o := &countingCA{}
		a.jump(10 * time.Second)
		if err := sign(t.Context(), a.Lease, o); err != nil {
			t.Errorf("within the lease: %v", err)
		}
		a.jump(3 * time.Second)
		if err := sign(t.Context(), a.Lease, o); ca.ReasonFor(err) != ca.Unavailable || o.calls != 1 {
			t.Errorf("%v, %d calls", err, o.calls)
		}
		waitFor(t, 30*time.Second, "the next term", func() bool { return a.led() == 2 && a.Held() == nil })
	})
}

func TestClockSetBackProlongsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _ := two(t, untilEnd)
		time.Sleep(5 * time.Second)
		a.jump(-time.Hour)
		if err := a.Held(); err != nil {
			t.Error(err)
		}
		a.set(true, false)
		waitFor(t, 13*time.Second, "it is not held", func() bool { return a.Held() != nil })
	})
}

// The others count from when the server had it, at the latest.
func TestRenewalCountsFromWhenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer()
		a := s.replica(t, "a", untilEnd)
		a.wire.mu.Lock()
		a.slow = 4 * time.Second
		a.wire.mu.Unlock()
		waitFor(t, 10*time.Second, "a leads", a.is) // and renews at once
		a.set(true, false)
		if took := waitFor(t, time.Minute, "it is not held", func() bool { return a.Held() != nil }); took > 12*time.Second+look {
			t.Errorf("held for %s after the last renewal was sent", took)
		}
	})
}

// A call that still waits for its provider must not go out later.
func TestCallInFlightEndsWithTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := two(t, untilEnd)
		o := &countingCA{hang: true}
		a.set(true, false)
		err := sign(t.Context(), a.Lease, o)
		if ca.ReasonFor(err) != ca.Unavailable || errors.Is(err, ca.ErrDenied) {
			t.Errorf("the word is final: %v", err)
		}
		if b.is() {
			t.Error("b leads already")
		}
	})
}

func TestCallersEndIsTheirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _ := two(t, untilEnd)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := sign(ctx, a.Lease, &countingCA{hang: true}); !errors.Is(err, context.DeadlineExceeded) || a.Held() != nil {
			t.Errorf("%v; held: %v", err, a.Held())
		}
	})
}

// A provider that ignores its context may still reach the CA, so the Lease is not released.
func TestLeaseIsNotReleasedDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := two(t, untilEnd)
		o := &countingCA{deaf: make(chan struct{})}
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			_ = sign(context.Background(), a.Lease, o)
		}()
		synctest.Wait()
		a.end()
		if s.holder() != "a" {
			t.Errorf("it is held by %q", s.holder())
		}
		took := waitFor(t, 25*time.Second, "b leads", b.is) // a follower looks after a drawn time
		if took < 10*time.Second {
			t.Errorf("b led %s later", took)
		}
		close(o.deaf)
		<-returned
	})
}

type engine struct {
	ra.Issuer
	asked int
}

func (e *engine) Issue(context.Context, *ra.Order) (ra.Certificate, error) {
	e.asked++
	return ra.Certificate{Rule: "pods"}, nil
}

func (e *engine) Prepare(context.Context, ra.Request) (*ra.Order, error) {
	e.asked++
	return nil, ca.Errorf(ca.Denied, "no rule matches")
}

// A word that is final for the request needs the Lease: another replica may have other rules.
func TestPolicyIsNotAskedWithoutTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := two(t, untilEnd)
		e := &engine{}
		if _, err := a.Issuer(e).Prepare(t.Context(), ra.Request{}); ca.ReasonFor(err) != ca.Denied {
			t.Error(err)
		}
		if _, err := b.Issuer(e).Prepare(t.Context(), ra.Request{}); ca.ReasonFor(err) != ca.Unavailable || e.asked != 1 {
			t.Errorf("%v, asked %d times", err, e.asked)
		}
	})
}

func TestIssuerRefusesWithoutTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := two(t, untilEnd)
		e := &engine{}
		if got, err := a.Issuer(e).Issue(t.Context(), nil); err != nil || got.Rule != "pods" {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := b.Issuer(e).Issue(t.Context(), nil); ca.ReasonFor(err) != ca.Unavailable || e.asked != 1 {
			t.Errorf("%v, asked %d times", err, e.asked)
		}
	})
}

// able is a CA with all abilities. Each call counts.
type able struct {
	countingCA
	closed bool
}

func (a *able) did() error {
	_, err := a.CSRSign(context.Background(), ca.SignRequest{})
	return err
}

func (a *able) Roots(context.Context) ([]byte, error) { return []byte("roots"), a.did() }
func (a *able) WatchRoots(_ context.Context, changed func([]byte) error) error {
	return errors.Join(a.did(), changed([]byte("roots")))
}

func (a *able) ExchangeToken(context.Context, ca.TokenRequest) (ca.ExchangedToken, error) {
	return ca.ExchangedToken{AccessToken: "x"}, a.did()
}

func (a *able) RenewalInfo(context.Context, []byte) (ca.RenewalInfo, error) {
	return ca.RenewalInfo{Explanation: "x"}, a.did()
}
func (a *able) CertifiesNames(context.Context) error { return a.did() }
func (a *able) Close() error                         { a.closed = true; return io.EOF }

// abilities are what each call returns.
func abilities(ctx context.Context, c *Client) map[string]error {
	all := map[string]error{}
	_, all["roots"] = c.Roots(ctx)
	all["watch"] = c.WatchRoots(ctx, func([]byte) error { return nil })
	_, all["token"] = c.ExchangeToken(ctx, ca.TokenRequest{})
	_, all["advice"] = c.RenewalInfo(ctx, nil)
	all["names"] = c.CertifiesNames(ctx)
	return all
}

func TestClientKeepsAbilities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := two(t, untilEnd)
		full := &able{}
		for what, err := range abilities(t.Context(), a.Client(full)) {
			if err != nil {
				t.Errorf("%s of the leader: %v", what, err)
			}
		}
		if full.calls != 5 {
			t.Errorf("%d calls of 5 went on", full.calls)
		}
		for what, err := range abilities(t.Context(), b.Client(full)) {
			if (what == "names") != (err == nil) || err != nil && ca.ReasonFor(err) != ca.Unavailable {
				t.Errorf("%s of the follower: %v", what, err)
			}
		}
		for _, replica := range []*replica{a, b} {
			for what, err := range abilities(t.Context(), replica.Client(&countingCA{})) {
				if ca.ActionFor(err) != ca.Missing {
					t.Errorf("%s of a CA that lacks it: %v", what, err)
				}
			}
		}
		if err := b.Client(full).Close(); !errors.Is(err, io.EOF) || !full.closed {
			t.Errorf("closed: %t, %v", full.closed, err)
		}
		if err := b.Client(&countingCA{}).Close(); err != nil {
			t.Error(err)
		}
	})
}
