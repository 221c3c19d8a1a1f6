package agent

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// hung is a storage that ignores its context and does not answer.
type hung struct{ over chan struct{} }

func (h hung) Load(context.Context, string) (secret.Record, error) {
	<-h.over
	return secret.Record{}, nil
}

func (h hung) Store(context.Context, string, secret.Record) error {
	<-h.over
	return nil
}

func TestStorageThatHangsKeepsNoBundleBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := hung{make(chan struct{})}
		defer close(storage.over)
		b := newBundleNumber(storage, "example.org", slog.New(slog.DiscardHandler))
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			began := time.Now()
			if _, _, err := b.Last(ctx); err != nil {
				t.Error(err)
			}
			if err := b.Store(ctx, 1, "digest"); err == nil {
				t.Error("stored")
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the calls took %s", took)
			}
			cancel()
		}
	})
}

// The roots of another trust domain are not published under the name of the one before.
func TestTrustDomainOfPublishedBundleNeedsARestart(t *testing.T) {
	before := config.Config{}
	before.PublishBundle.Address = ":8443"
	before.TrustDomain = "example.org"
	after := before
	after.TrustDomain = "other.example"
	if err := (&reloader{start: &start{c: before}}).needsRestart(after); err == nil {
		t.Error("no error")
	}
	before.PublishBundle = config.PublishBundle{}
	if err := (&reloader{start: &start{c: before}}).needsRestart(after); err != nil {
		t.Error(err)
	}
}
