//go:build e2e

package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/record"
	"github.com/countersign-dev/countersign/ra/share"
)

const (
	withReplicas = "resources: [BASE/ra]\ncomponents: [BASE/ra/replicas]"
	raShares     = "countersign-ra-shares"
	raRenewals   = "countersign-ra-renewals-7" // the last
	shareWithin  = kubetest.Patience
)

// shareholder is a replica that wants all of a quota.
type shareholder struct {
	*share.Keeper
	end func()
}

func newShareholder(t *testing.T, client kubernetes.Interface) shareholder {
	t.Helper()
	store, err := record.NewSingle(record.Object{Client: client, Kind: record.Lease, Namespace: raNamespace, Name: raShares}, record.Shares)
	must(t, err)
	keeper, err := share.New(share.Config{Store: store, Duration: 3 * time.Second, Wants: func() map[string]float64 { return map[string]float64{"ca": 1} }})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); keeper.Run(ctx) }()
	end := func() { cancel(); <-over }
	t.Cleanup(end)
	return shareholder{keeper, end}
}

// has waits until each has a share of at least that, or of less.
func has(t *testing.T, what string, all []shareholder, so func(share float64) bool) {
	t.Helper()
	soonIn(t, shareWithin, what, func() error {
		for _, s := range all {
			if got := s.Share("ca"); !so(got) {
				return fmt.Errorf("one has %v: %+v", got, s.Status())
			}
		}
		return nil
	})
}

// The component's rights suffice to share quotas, also over an API server that was away.
func TestRealReplicasShareAQuota(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	c.Namespace(raNamespace)
	apply(t, c, built(t, withReplicas, nil))
	client := c.ClientFor(c.Account(raNamespace, raAccount))
	both := []shareholder{newShareholder(t, client), newShareholder(t, client)}
	half := func(share float64) bool { return share > 0.45 && share <= 0.5 }
	has(t, "each has half", both, half)
	c.Stop()
	has(t, "nobody can tell", both, func(share float64) bool { return share == 0 })
	c.Resume()
	has(t, "each has half again", both, half)
	both[0].end()
	all := func(share float64) bool { return share > 0.9 }
	has(t, "one has all", both[1:], all)
	must(t, c.Client().CoordinationV1().Leases(raNamespace).Delete(t.Context(), raShares, metav1.DeleteOptions{}))
	both[1].end() // maybe before it writes the record again
	has(t, "the next has all", []shareholder{newShareholder(t, client)}, all)
}

// The component's rights suffice for the record of renewals, up to the largest one.
func TestRealRecordOfRenewalsIsReplacedOnlyAsItWasRead(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	c.Namespace(raNamespace)
	apply(t, c, built(t, withReplicas, nil))
	store, err := record.NewSingle(record.Object{Client: c.ClientFor(c.Account(raNamespace, raAccount)), Kind: record.ConfigMap, Namespace: raNamespace, Name: raRenewals}, record.Renewals)
	must(t, err)
	soon(t, "the rights are seen", func() error { _, _, err := store.Load(t.Context()); return err })
	save := func(record, version string, want error) {
		t.Helper()
		if err := store.Save(t.Context(), []byte(record), version); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	save("one", "", nil)
	save("another first", "", share.ErrConflict)
	record, version, err := store.Load(t.Context())
	must(t, err)
	largest := bytes.Repeat([]byte("x"), 900<<10)
	save(string(largest), version, nil)
	save("late", version, share.ErrConflict)
	if record, _, err = store.Load(t.Context()); err != nil || !bytes.Equal(record, largest) {
		t.Errorf("%d bytes, %v", len(record), err)
	}
}
