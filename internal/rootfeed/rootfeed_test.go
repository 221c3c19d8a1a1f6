package rootfeed_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/rootfeed"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// authority publishes its roots in both ways, as far as they work.
type authority struct {
	ca.Client
	watch, ask error // the errors of a watch and of a call
	watched    int
}

func (a *authority) WatchRoots(_ context.Context, send func([]byte) error) error {
	a.watched++
	if errors.Is(a.watch, ca.ErrUnimplemented) {
		return a.watch
	}
	return errors.Join(send([]byte("bad")), send([]byte("good")), a.watch)
}

func (a *authority) Roots(context.Context) ([]byte, error) { return []byte("asked"), a.ask }

func TestListenFallsBackFromWatchToCalls(t *testing.T) {
	missing := ca.Errorf(ca.Unimplemented, "an older version")
	away := ca.Errorf(ca.Unavailable, "away")
	for name, test := range map[string]struct {
		authority ca.Client
		taken     string
		tells     bool
		err       error
	}{
		"neither":              {nil, "", false, nil},
		"a watch":              {&authority{watch: away}, "good", true, ca.ErrUnavailable},
		"a watch that ends":    {&authority{}, "good", true, ca.ErrUnavailable},
		"calls alone":          {&authority{watch: missing}, "asked", true, nil},
		"calls that fail":      {&authority{watch: missing, ask: away}, "", true, ca.ErrUnavailable},
		"an upgrade took both": {&authority{watch: missing, ask: missing}, "", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var taken string
			var refused error
			f := rootfeed.Feed{
				Client: test.authority, Timeout: time.Second, Interval: time.Minute, Turn: call.NewTurn(),
				Take: func(_ context.Context, roots []byte) error {
					if string(roots) == "bad" {
						return errors.New("no certificate")
					}
					taken = string(roots)
					return nil
				},
				Refused: func(err error) { refused = err },
			}
			wait, tells, err := f.Listen(t.Context())
			if taken != test.taken || tells != test.tells || !errors.Is(err, test.err) {
				t.Errorf("took %q, %t, %v", taken, tells, err)
			}
			if (taken == "good") != (refused != nil) {
				t.Errorf("refused: %v", refused)
			}
			if taken != "good" && (wait < 54*time.Second || wait > 66*time.Second) {
				t.Errorf("wait %s", wait)
			}
		})
	}
}

func TestMissingAbilityIsTriedAgainOnlyIfForgotten(t *testing.T) {
	a := &authority{watch: ca.Errorf(ca.Unimplemented, "an older version")}
	f := rootfeed.Feed{Client: a, Timeout: time.Second, Interval: time.Minute, Turn: call.NewTurn(), Take: func(context.Context, []byte) error { return nil }}
	for _, want := range []int{1, 1, 2} {
		if want == 2 {
			f.Forget()
		}
		if _, tells, err := f.Listen(t.Context()); !tells || err != nil || a.watched != want {
			t.Errorf("%t, %v after %d watches, want %d", tells, err, a.watched, want)
		}
	}
}
