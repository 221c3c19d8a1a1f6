package identities_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// advisor is an authority with renewal advice.
type advisor struct {
	*authority
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

// advised runs a test with an authority that gives this advice.
func advised(t *testing.T, advise func(context.Context, []byte) (ca.RenewalInfo, error), test func(*engine, *advisor)) {
	t.Helper()
	a := &advisor{advise: advise}
	bubble(t, func(e *engine, c *identities.Config) {
		a.authority = e.ca
		c.Limits.InFlight = 1 // so that a signer that does not sign is missed
		err := e.manager.Reload([]secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}}}, []secret.Authority{{Name: "test", Client: a}})
		if err != nil {
			t.Fatal(err)
		}
	}, func(e *engine) { test(e, a) })
}

func TestEachIdentityIsRenewedAsAdvised(t *testing.T) {
	began := time.Time{}
	advised(t, func(context.Context, []byte) (ca.RenewalInfo, error) {
		if began.IsZero() {
			began = time.Now()
		}
		return ca.RenewalInfo{Start: began.Add(10 * time.Minute), End: began.Add(12 * time.Minute), Explanation: "https://ca.example/\x1bwhy"}, nil
	}, func(e *engine, a *advisor) {
		for _, owner := range []string{"web", "shop", "bank"} {
			e.join(token(owner)).held()
		}
		after(9 * time.Minute)
		e.requests(3)
		after(5 * time.Minute)
		e.requests(6)
		counts := e.Counts()
		if counts.Advised < 3 || counts.Advice == nil || strings.ContainsRune(counts.Advice.Explanation, '\x1b') {
			t.Errorf("counts %+v, advice %+v", counts, counts.Advice)
		}
		if a.most.Load() != 1 {
			t.Errorf("%d questions at once", a.most.Load())
		}
	})
}

func TestHangingAdviceKeepsNoIdentityFromItsCertificate(t *testing.T) {
	advised(t, func(ctx context.Context, _ []byte) (ca.RenewalInfo, error) {
		<-ctx.Done()
		return ca.RenewalInfo{}, ctx.Err()
	}, func(e *engine, a *advisor) {
		var streams []*stream
		for owner := range strings.FieldsSeq("a b c d e f g h i j k l m n o p q r s t") {
			streams = append(streams, e.join(token(owner)))
		}
		for range 4 * 60 {
			after(time.Minute)
			for _, s := range streams {
				s.held()
			}
		}
		if n := len(e.ca.Requests()); n < 20*7 || n > 20*10 || e.count(secret.Failed) > 0 {
			t.Errorf("%d requests in four hours, %d failures", n, e.count(secret.Failed))
		}
		if a.most.Load() != 1 {
			t.Errorf("%d questions at once", a.most.Load())
		}
	})
}

func TestAuthorityWithoutAdviceIsAskedOnceForAll(t *testing.T) {
	advised(t, func(context.Context, []byte) (ca.RenewalInfo, error) { return ca.RenewalInfo{}, ca.ErrUnimplemented }, func(e *engine, a *advisor) {
		e.join(token("web")).held()
		after(2 * time.Minute)
		for _, owner := range []string{"shop", "bank", "mail"} {
			e.join(token(owner)).held()
		}
		after(3 * time.Hour)
		if a.asked.Load() != 1 {
			t.Errorf("asked %d times", a.asked.Load())
		}
		e.Kick()
		after(2 * time.Minute)
		if n := a.asked.Load(); n < 2 || n > 5 {
			t.Errorf("asked %d times after a change", n)
		}
	})
}

func TestLeavingWhileAdviceIsAskedForIsHarmless(t *testing.T) {
	advised(t, func(ctx context.Context, _ []byte) (ca.RenewalInfo, error) {
		time.Sleep(10 * time.Second)
		return ca.RenewalInfo{Start: time.Now().Add(-time.Hour), End: time.Now().Add(-time.Minute)}, nil
	}, func(e *engine, _ *advisor) {
		s := e.join(token("web"))
		s.held()
		s.leave()
		after(2 * time.Hour)
		e.requests(1)
	})
}
