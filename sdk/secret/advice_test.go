package secret_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// advisor is an authority that says when to renew.
type advisor struct {
	*catest.CA
	advise func(ctx context.Context, leaf []byte) (ca.RenewalInfo, error)
	asked  atomic.Int64
	inside atomic.Int64
	most   atomic.Int64
}

func (a *advisor) RenewalInfo(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	a.asked.Add(1)
	a.most.Store(max(a.most.Load(), a.inside.Add(1)))
	defer a.inside.Add(-1)
	return a.advise(ctx, leaf)
}

// newAdvised starts an engine with an authority that gives this advice.
func newAdvised(t *testing.T, advise func(ctx context.Context, leaf []byte) (ca.RenewalInfo, error)) (*engine, *advisor) {
	t.Helper()
	a := &advisor{advise: advise}
	e := newEngine(t, client(func(c *catest.CA) ca.Client { a.CA = c; return a }))
	return e, a
}

// always is the same advice for every certificate.
func always(info ca.RenewalInfo, err error) func(context.Context, []byte) (ca.RenewalInfo, error) {
	return func(context.Context, []byte) (ca.RenewalInfo, error) { return info, err }
}

func TestRenewalFollowsAdviceInPlaceOfItsOwnDraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		e, _ := newAdvised(t, always(ca.RenewalInfo{Start: began.Add(10 * time.Minute), End: began.Add(12 * time.Minute), Explanation: "https://ca.example/\x1b[31mwhy"}, nil))
		after(2 * time.Minute)
		if in := e.held("default").RenewAt.Sub(began); in < 10*time.Minute || in > 12*time.Minute {
			t.Errorf("renewal after %s", in)
		}
		advice := e.status("default").Advice
		if advice == nil || !advice.WindowStart.Equal(began.Add(10*time.Minute)) || strings.ContainsRune(advice.Explanation, '\x1b') || !strings.Contains(advice.Explanation, "https://ca.example/") {
			t.Errorf("status %+v", advice)
		}
		if log := e.logged(); !strings.Contains(log, "as the authority advises") || !strings.Contains(log, "explanation") || strings.ContainsRune(log, '\x1b') {
			t.Errorf("logged %s", log)
		}
		after(7 * time.Minute)
		e.requests(1)
		after(4 * time.Minute)
		e.requests(2)
	})
}

func TestRevokedCertificateIsRenewedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revoked atomic.Value // the certificate; its successors are not revoked
		began := time.Now()
		e, _ := newAdvised(t, func(_ context.Context, leaf []byte) (ca.RenewalInfo, error) {
			info := ca.RenewalInfo{Start: time.Now().Add(30 * time.Minute), End: time.Now().Add(40 * time.Minute), RetryAfter: 2 * time.Minute}
			if is, _ := revoked.Load().([]byte); bytes.Equal(is, leaf) {
				info.Start, info.End = began.Add(-time.Hour), began.Add(-time.Minute)
			}
			return info, nil
		})
		after(15 * time.Minute)
		e.requests(1)
		leaf, _ := pem.Decode(e.held("default").Chain)
		revoked.Store(pem.EncodeToMemory(leaf))
		after(9 * time.Minute) // the next question, and the spread
		e.requests(2)
	})
}

// The root comes again with another serial number, and the same key, while the CA thinks.
func TestAdviceInFlightSurvivesReissuedRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		moment := time.Now().Add(20 * time.Minute)
		a := &advisor{advise: func(context.Context, []byte) (ca.RenewalInfo, error) {
			<-free
			return ca.RenewalInfo{Start: moment, End: moment.Add(time.Second)}, nil
		}}
		e := newEngine(t, func(c *secret.Config) {
			client(func(c *catest.CA) ca.Client { a.CA = c; return a })(c)
			overlap(0)(c)
		})
		e.held("default")
		for a.asked.Load() == 0 {
			after(time.Second)
		}
		again := issueAgain(t, e.ca)
		e.ca.SetRoots(again)
		e.serves(again.Fingerprints()...)
		close(free)
		synctest.Wait()
		if at := e.held("default").RenewAt; at.Before(moment) || at.After(moment.Add(time.Second)) {
			t.Errorf("it is renewed at %s, want %s", at, moment)
		}
	})
}

func TestHangingAdviceCostsOneGoroutineAndNoCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		e, a := newAdvised(t, func(context.Context, []byte) (ca.RenewalInfo, error) {
			<-free // whatever its context says
			return ca.RenewalInfo{}, ca.ErrUnavailable
		})
		for range 5 * 60 {
			after(time.Minute)
			e.held("default")
		}
		if n := len(e.ca.Requests()); n < 9 || n > 11 {
			t.Errorf("%d requests in five hours", n)
		}
		if a.most.Load() != 1 || a.asked.Load() == 0 {
			t.Errorf("%d questions hang", a.most.Load())
		}
		close(free)
		synctest.Wait()
	})
}

func TestWindowAlwaysInThePastIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := newAdvised(t, func(context.Context, []byte) (ca.RenewalInfo, error) {
			return ca.RenewalInfo{Start: time.Now().Add(-2 * time.Hour), End: time.Now().Add(-time.Hour), RetryAfter: time.Second}, nil
		})
		after(10 * ttl)
		if n := len(e.ca.Requests()); n < 50 || n > 101 {
			t.Errorf("%d requests in ten lives", n)
		}
	})
}

func TestFailedAdviceLeavesTheRenewalAsDrawn(t *testing.T) {
	for name, advise := range map[string]func(context.Context, []byte) (ca.RenewalInfo, error){
		"away":     always(ca.RenewalInfo{}, ca.ErrUnavailable),
		"unknown":  always(ca.RenewalInfo{}, ca.ErrInvalid),
		"reversed": always(ca.RenewalInfo{Start: time.Unix(2e9, 0), End: time.Unix(1e9, 0)}, nil),
	} {
		synctest.Test(t, func(t *testing.T) {
			e, a := newAdvised(t, advise)
			drawn := e.held("default").RenewAt
			after(5 * time.Minute)
			if got := e.held("default").RenewAt; !got.Equal(drawn) || a.asked.Load() != 1 || e.status("default").Advice != nil {
				t.Errorf("%s: renewal at %s, drawn was %s; asked %d times", name, got, drawn, a.asked.Load())
			}
			e.untilRenewal(time.Second)
			e.requests(2)
		})
	}
}

func TestAuthorityWithoutAdviceIsAskedOnceUntilItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := newAdvised(t, always(ca.RenewalInfo{}, ca.ErrUnimplemented))
		after(5 * time.Hour)
		if a.asked.Load() != 1 {
			t.Errorf("asked %d times in five hours", a.asked.Load())
		}
		e.Kick("test")
		after(5 * time.Minute)
		if a.asked.Load() != 2 {
			t.Errorf("asked %d times after a change", a.asked.Load())
		}
	})
}
