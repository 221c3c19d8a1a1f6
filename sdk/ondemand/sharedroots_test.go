package ondemand_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// polled is a CA whose roots are polled, each few minutes; before, if set, are those that it returns.
type polled struct {
	of     *authority
	before atomic.Pointer[[]byte]
	asked  atomic.Int64
}

func (p *polled) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	return p.of.CSRSign(ctx, req)
}

func (p *polled) Roots(ctx context.Context) ([]byte, error) {
	p.asked.Add(1)
	if before := p.before.Load(); before != nil {
		return *before, nil
	}
	return p.of.Roots(ctx)
}

// The CA has a new root, which one machine gets at once and the other one at its next poll.
func TestMachineWhoseRootsLagAsksForThemBeforeItOrders(t *testing.T) {
	lagging := func(f *fleet) *polled {
		p := &polled{of: f.ca}
		f.engines[1].useCA(p)
		f.ca.Rotate()
		return p
	}
	t.Run("new", func(t *testing.T) {
		machines(t, 2, nil, func(f *fleet) {
			p := lagging(f)
			f.engines[0].subscribe(shopA)
			item := f.engines[0].has(shopA)
			asked := p.asked.Load()
			f.engines[1].subscribe(shopA)
			after(4 * time.Second)
			if f.engines[1].has(shopA).Fingerprint != item.Fingerprint {
				t.Error("the machine whose roots lag serves another certificate")
			}
			f.distinct(1)
			if n := p.asked.Load() - asked; n < 1 || n > 3 {
				t.Errorf("the CA was asked for its roots %d times", n)
			}
		})
	})
	t.Run("renewal", func(t *testing.T) {
		machines(t, 2, nil, func(f *fleet) {
			f.engines[0].subscribe(shopA)
			f.engines[1].subscribe(shopA)
			after(3 * time.Second)
			held := f.engines[1].has(shopA)
			lagging(f)
			f.machines[1].set(func() { f.machines[1].away = ca.Errorf(ca.Unavailable, "away") })
			after(time.Until(held.RenewAt) + 2*time.Hour)
			item := f.engines[0].has(shopA)
			if f.engines[1].has(shopA).Fingerprint != held.Fingerprint || item.Fingerprint == held.Fingerprint {
				t.Fatal("it was not renewed by the machine with the roots")
			}
			f.machines[1].set(func() { f.machines[1].away = nil })
			after(6 * time.Second)
			if f.engines[1].has(shopA).Fingerprint != item.Fingerprint {
				t.Error("the machine whose roots lag serves another certificate")
			}
			f.distinct(2)
		})
	})
	// The root never comes: the machine orders a certificate of its own, soon.
	t.Run("never", func(t *testing.T) {
		machines(t, 2, nil, func(f *fleet) {
			p := &polled{of: f.ca}
			old := f.ca.Bundle().PEM()
			p.before.Store(&old)
			f.engines[1].useCA(p)
			f.ca.Rotate()
			f.engines[0].subscribe(shopA)
			f.engines[0].has(shopA)
			f.engines[1].subscribe(shopA)
			after(8 * time.Second)
			f.engines[1].has(shopA)
			f.distinct(2)
			if n := p.asked.Load(); n > 10 {
				t.Errorf("the CA was asked for its roots %d times", n)
			}
		})
	})
}

// The folder is there, and the record cannot be read: near the end of a certificate, an order of one's own
// is better than an outage.
func TestRenewalNearTheEndNeedsNoRecord(t *testing.T) {
	machines(t, 1, nil, func(f *fleet) {
		e := f.engines[0]
		e.subscribe(shopA)
		held := e.has(shopA)
		f.machines[0].set(func() {
			f.machines[0].fault = func(step string) error {
				if step == "load" {
					return ca.Errorf(ca.Unavailable, "cannot be read")
				}
				return nil
			}
		})
		after(time.Until(held.RenewAt) + 2*time.Hour)
		f.distinct(1)
		after(time.Until(held.NotAfter) - time.Hour)
		if e.has(shopA).Fingerprint == held.Fingerprint {
			t.Error("it was not renewed")
		}
	})
}
