package pluginhost

import (
	"context"
	"errors"
	"strings"
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

func TestAbilityThatIsNotDeclaredIsNotCalled(t *testing.T) {
	inBubble(t, "fine", func(t *testing.T, w *world) {
		w.abilities = nil // the fake would answer each
		ignore := func([]byte) error { return nil }
		for name, call := range map[string]func() error{
			"Roots":        func() error { _, err := w.p.Roots(t.Context()); return err },
			"WatchRoots":   func() error { return w.p.WatchRoots(t.Context(), ignore) },
			"Revocations":  func() error { _, err := w.p.Revocations(t.Context()); return err },
			"RenewalInfo":  func() error { _, err := w.p.RenewalInfo(t.Context(), nil); return err },
			"WatchJWTKeys": func() error { return w.p.WatchJWTKeys(t.Context(), ignore) },
			"WatchWITKeys": func() error { return w.p.WatchWITKeys(t.Context(), ignore) },
		} {
			if err := call(); !errors.Is(err, ca.ErrUnimplemented) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestFactsOfTheLifeTravelWithItsCertificates(t *testing.T) {
	inBubble(t, "fine", func(t *testing.T, w *world) {
		w.facts = ca.Facts{FixedLifetime: true, NameMatch: ca.MatchAny}
		if cert, err := w.p.CSRSign(t.Context(), ca.SignRequest{}); err != nil || cert.Facts != w.facts {
			t.Errorf("got %+v, %v", cert.Facts, err)
		}
	})
}

// The CA would refuse it, and its words would not name the setting.
func TestProviderThatNeedsATokenIsNotAskedWithoutOne(t *testing.T) {
	inBubble(t, "fine", func(t *testing.T, w *world) {
		w.facts = ca.Facts{NeedsToken: true}
		_, err := w.p.CSRSign(t.Context(), ca.SignRequest{})
		if !errors.Is(err, ca.ErrUnauthenticated) || !strings.Contains(err.Error(), "set token in its entry") || w.lives[0].calls.Load() != 0 {
			t.Errorf("without a token: %v, %d calls", err, w.lives[0].calls.Load())
		}
		if _, err := w.p.SignJWT(t.Context(), ca.JWTRequest{}); !errors.Is(err, ca.ErrUnauthenticated) {
			t.Errorf("a JWT-SVID without a token: %v", err)
		}
		if _, err := w.p.SignWIT(t.Context(), ca.WITRequest{}); !errors.Is(err, ca.ErrUnauthenticated) {
			t.Errorf("a WIT-SVID without a token: %v", err)
		}
		if _, err := w.p.CSRSign(t.Context(), ca.SignRequest{Token: "eyJ.token"}); err != nil || w.lives[0].calls.Load() != 1 {
			t.Errorf("with a token: %v", err)
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
