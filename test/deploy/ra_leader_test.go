//go:build e2e

package deploy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/kubernetes/record"
	"github.com/countersign-dev/countersign/kubernetes/signing/lease"
)

// leads runs a replica until it leads, and returns what ends it. On a busy machine, a Lease of 3 s, the least, is
// lost between two writes.
func leads(t *testing.T, client kubernetes.Interface, identity string) (l *lease.Lease, end func()) {
	t.Helper()
	l, err := lease.New(lease.Config{Client: client, Namespace: raNamespace, Name: raAccount, Identity: identity, Duration: 10 * time.Second})
	must(t, err)
	began := make(chan struct{}, 10)
	end = background.Run(func(ctx context.Context) {
		l.Run(ctx, func(ctx context.Context) {
			began <- struct{}{}
			<-ctx.Done()
		})
	})
	t.Cleanup(end)
	select {
	case <-began:
	case <-time.After(time.Minute):
		t.Fatalf("%s does not lead: %+v", identity, l.Status())
	}
	return l, end
}

// The base's rights suffice to lead, to keep records and to hand both over.
func TestRealLeaderHandsItsRecordsOver(t *testing.T) {
	c, client, _ := raBound(t)
	first, end := leads(t, client, "first")
	kept, err := record.NewStore(record.Object{Client: client, Kind: record.ConfigMap, Namespace: raNamespace, Name: raAccount}, first.Held)
	must(t, err)
	got, err := kept.Load(t.Context(), "vault")
	if err != nil || got != nil {
		t.Errorf("%s, %v", got, err)
	}
	must(t, kept.Save(t.Context(), "vault", []byte(`{"a":1}`)))
	must(t, kept.Save(t.Context(), "vault", []byte(`{"a":2}`)))
	end()
	second, _ := leads(t, client, "second")
	if err := kept.Save(t.Context(), "vault", []byte(`{"a":3}`)); err == nil {
		t.Error("the first one still writes")
	}
	next, err := record.NewStore(record.Object{Client: client, Kind: record.ConfigMap, Namespace: raNamespace, Name: raAccount}, second.Held)
	must(t, err)
	if got, err := next.Load(t.Context(), "vault"); err != nil || string(got) != `{"a":2}` {
		t.Errorf("%s, %v", got, err)
	}
	c.Stop() // the API server is away for longer than the lease
	soon(t, "the lease is lost", func() error {
		if second.Held() == nil {
			return errors.New("it is held")
		}
		return nil
	})
	c.Resume()
	soon(t, "it leads again", second.Held)
	must(t, next.Save(t.Context(), "vault", []byte(`{"a":4}`)))
}
