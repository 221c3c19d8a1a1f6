package program

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/record"
	"github.com/countersign-dev/countersign/kubernetes/signing/lease"
	"github.com/countersign-dev/countersign/ra/share"
)

// An idle leader that serves a mesh writes its Lease, and the shares of its two engines. Each write
// costs etcd a transaction on each of its members.
func TestIdleLeaderWritesSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := kubetest.NewFake(), slog.New(slog.DiscardHandler)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		l, err := lease.New(lease.Config{Client: api.Client(), Namespace: "countersign", Name: config.Lease, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { l.Run(ctx, func(ctx context.Context) { <-ctx.Done() }) })
		store, err := record.NewSingle(record.Object{Client: api.Client(), Kind: record.Lease, Namespace: "countersign", Name: config.Lease + "-shares"}, record.Shares)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			keeper, err := share.New(share.Config{Store: store, Wants: func() map[string]float64 { return map[string]float64{"vault": 0} }, Log: log})
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() { keeper.Run(ctx) })
		}
		time.Sleep(2 * time.Hour) // all floors of shares are settled
		before := writes(api)
		time.Sleep(10 * time.Minute)
		perMinute := map[string]float64{}
		for object, n := range writes(api) {
			if n -= before[object]; n > 0 {
				perMinute[object] = float64(n) / 10
			}
		}
		t.Logf("writes a minute: %v", perMinute)
		if own, shares := perMinute[config.Lease], perMinute[config.Lease+"-shares"]; own+shares > 45 || own < 15 || shares < 15 || len(perMinute) != 2 {
			t.Errorf("writes a minute: %v, want 45 at most for both Leases", perMinute)
		}
	})
}

// writes counts what was written, by the object's name.
func writes(api *kubetest.Fake) map[string]int {
	all := map[string]int{}
	for _, c := range api.Calls() {
		if c.Verb != "get" && c.Verb != "list" && c.Verb != "watch" {
			all[c.Name]++
		}
	}
	return all
}
