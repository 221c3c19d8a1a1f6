package pluginhost

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// withSecret are settings with one secret.
type withSecret ca.Token

func (s withSecret) Resolve(context.Context, reference.Paths) (reference.Resolved, error) {
	return reference.Resolved{Secrets: []ca.Token{ca.Token(s)}}, nil
}

func (s withSecret) Reread(ctx context.Context, paths reference.Paths) (reference.Resolved, error) {
	return s.Resolve(ctx, paths)
}

func (withSecret) Files(reference.Paths) []string { return nil }

func TestSecretSettingsAreHiddenFromTheLogOfTheirProvider(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		plan := w.planThat("good")
		plan.settings, plan.entry.Version = withSecret("sesame"), "another"
		if err := w.reload(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		w.mustSign(t, "good")
		lives := w.all()
		if last := lives[len(lives)-1]; len(lives) != 2 || !slices.Contains(last.hidden, "sesame") {
			t.Errorf("%d lives, hidden from the last one's log: %d values", len(lives), len(last.hidden))
		}
	})
}

// A call may be older than a change of its secret, and while other settings are tried the
// provider still uses those that it has.
func TestErrorsShowNoSecretThatALifeHasOrHad(t *testing.T) {
	l := &life{instance: &fakeLife{}}
	for _, secret := range []ca.Token{"sesame-1", "sesame-2"} {
		l.keepSecret(&reference.Resolved{Secrets: []ca.Token{secret}})
	}
	if err := l.hide(ca.Errorf(ca.Denied, "neither with sesame-1 nor sesame-2")); strings.Contains(err.Error(), "sesame") || !errors.Is(err, ca.ErrDenied) {
		t.Error(err)
	}
}
