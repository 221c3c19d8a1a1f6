package ra_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/share"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// replicas are engines of one authority that share its quota.
type replicas struct {
	all  []*house
	stop []func()
}

// newReplicas returns n that share a quota of 6 a second.
func newReplicas(t *testing.T, n int, authority *ratest.CA) *replicas {
	t.Helper()
	out, record := &replicas{}, &ratest.Record{}
	for range n {
		var h *house
		keeper, err := share.New(share.Config{
			Store: record, Wants: func() map[string]float64 { return map[string]float64{"ca": h.Wanted("ca")} },
			Changed: func(pool string) { h.ShareChanged(pool) },
		})
		if err != nil {
			t.Fatal(err)
		}
		h = newHouse(t, func(c *ra.Config) {
			a := &c.Authorities[0]
			a.Client, a.Limits, a.Share = authority, ra.Limits{Rate: 6, Burst: 6}, func() float64 { return keeper.Share("ca") }
		})
		stop := background.Run(keeper.Run)
		out.all = append(out.all, h)
		out.stop = append(out.stop, func() { stop(); h.Close() })
	}
	time.Sleep(time.Minute) // until they have shares
	return out
}

func (r *replicas) close() {
	for _, stop := range r.stop {
		stop()
	}
}

// calls are the times of an authority's calls.
type calls struct {
	mu sync.Mutex
	at []time.Time
}

func (c *calls) count(context.Context, ca.SignRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Now())
	return nil
}

// within returns how many there were between two times.
func (c *calls) within(from, to time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.at {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// bounded demands that no stretch of time has more calls than the quota.
func (c *calls) bounded(t *testing.T, rate, burst float64) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.at {
		for j := i; j < len(c.at); j++ {
			if most := burst + rate*c.at[j].Sub(c.at[i]).Seconds(); float64(j-i+1) > math.Ceil(most)+1e-6 {
				t.Fatalf("%d calls in %s, %.1f are the quota", j-i+1, c.at[j].Sub(c.at[i]), most)
			}
		}
	}
}

func TestReplicasNeverExceedTheQuotaTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	synctest.Test(t, func(t *testing.T) {
		o, seen := ratest.NewCA(t), &calls{}
		o.Before = seen.count
		r := newReplicas(t, 3, o)
		defer r.close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for n := range 6000 { // most at the first replica
			h := r.all[0]
			if n%10 > 7 {
				h = r.all[n%10-7]
			}
			h.in(ctx, fmt.Sprint("ns-", n%7), n)
		}
		begun := time.Now()
		time.Sleep(2 * time.Minute)
		seen.bounded(t, 6, 6)
		if n := seen.within(begun.Add(10*time.Second), begun.Add(110*time.Second)); n < 600*95/100 {
			t.Errorf("%d calls in 100 seconds, 600 are the quota", n)
		}
		r.stop[0]() // the others have its share soon
		r.stop = r.stop[1:]
		left := time.Now()
		time.Sleep(time.Minute)
		seen.bounded(t, 6, 6)
		if n := seen.within(left.Add(10*time.Second), left.Add(50*time.Second)); n < 240*95/100 {
			t.Errorf("without one replica %d calls in 40 seconds, 240 are the quota", n)
		}
	})
}

func TestReplicaWithoutAShareAsksNothing(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Authorities[0].Share = math.NaN }, func(h *house) {
		ctx, cancel := context.WithTimeout(h.t.Context(), time.Hour)
		defer cancel()
		if err := <-h.in(ctx, "shop", 1); !errors.Is(err, context.DeadlineExceeded) || len(h.ca.Requests()) > 0 {
			t.Errorf("%v after %d calls", err, len(h.ca.Requests()))
		}
	})
}

// Each replica answers equal requests with one certificate; they do not know of each other's.
func TestSameKeyAtTwoReplicasCostsTwoCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := ratest.NewCA(t)
		o.Before = func(context.Context, ca.SignRequest) error { time.Sleep(time.Second); return nil }
		r := newReplicas(t, 2, o)
		defer r.close()
		var all []<-chan error
		for n := range 8 {
			all = append(all, r.all[n%2].in(t.Context(), "shop", 1))
		}
		for _, done := range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		made := o.Requests()
		if len(made) != 2 {
			t.Fatalf("%d calls", len(made))
		}
		if made[0].ID != made[1].ID { // so an authority that recognizes repeats makes one
			t.Error("they ask under different IDs")
		}
	})
}
