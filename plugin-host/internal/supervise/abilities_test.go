package supervise

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func TestCertifyingNamesIsAnsweredByTheMetadataOfTheLife(t *testing.T) {
	inBubble(t, "fine", func(t *testing.T, w *world) {
		if err := w.p.CertifiesNames(t.Context()); !errors.Is(err, ca.ErrUnimplemented) {
			t.Errorf("without the ability: %v", err)
		}
		w.abilities = []wire.Ability{wire.NamesFromRequest}
		if err := w.p.CertifiesNames(t.Context()); err != nil {
			t.Errorf("with the ability: %v", err)
		}
		w.p.Close()
		if err := w.p.CertifiesNames(t.Context()); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("closed: %v", err)
		}
	})
}

// A provider that is not there yet is not one that lacks the ability.
func TestCertifyingNamesIsUnknownBeforeTheProviderIsReady(t *testing.T) {
	inBubble(t, "away", func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := w.p.CertifiesNames(ctx); !errors.Is(err, ca.ErrDeadline) {
			t.Errorf("while the CA is away: %v", err)
		}
	})
}
