package token

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Ordered uses the first of its sources that has an unexpired token.
type Ordered struct {
	// Sources are asked in order. A source with a String method appears by it in the log.
	// At least one is required.
	Sources []Source
	// Now is the wall clock. Default: the system clock.
	Now func() time.Time
	// Log receives a warning for each skipped source. Default: [slog.Default].
	Log *slog.Logger
}

// Token returns the first valid token. If there is none, the error gives each source's
// reason; it is nil if one source needs no token.
func (o Ordered) Token(ctx context.Context) (ca.Bearer, error) {
	var failures []error
	for _, source := range o.Sources {
		got, err := o.ask(ctx, source)
		if err == nil && got.Token != "" {
			o.tell(failures)
			return got, nil
		}
		failures = append(failures, err)
		if ctx.Err() != nil {
			break
		}
	}
	return ca.Bearer{}, dry(failures)
}

func (o Ordered) ask(ctx context.Context, source Source) (ca.Bearer, error) {
	got, err := source.Token(ctx)
	if err == nil && got.Expired(o.now()) {
		err = ca.Errorf(ca.Unavailable, "%s: the token expired at %s", describe(source), clock.Stamp(got.Expiry))
	}
	return got, err
}

func (o Ordered) now() time.Time {
	if o.Now == nil {
		return clock.Wall()
	}
	return o.Now()
}

func (o Ordered) tell(failures []error) {
	if text := sentences(failures); text != "" {
		cmp.Or(o.Log, slog.Default()).Warn("token source skipped", "error", text)
	}
}

// dry returns the error of sources without a token; nil if one needs none. The first
// source's reason counts, as it is the preferred one.
func dry(failures []error) error {
	for _, err := range failures {
		if err == nil {
			return nil
		}
	}
	if len(failures) == 0 {
		return ca.Errorf(ca.Unavailable, "there is no source of tokens")
	}
	first := failures[0]
	if len(failures) == 1 {
		return first
	}
	return &ca.Error{Reason: ca.ReasonFor(first), Message: sentences(failures), RetryAfter: ca.RetryAfter(first), Err: errors.Join(failures...)}
}

// sentences joins the failures on one line.
func sentences(failures []error) string {
	var all []string
	for _, err := range failures {
		if err != nil {
			all = append(all, err.Error())
		}
	}
	return strings.Join(all, "; ")
}

// Rejected forwards the rejection to every source that has the method.
func (o Ordered) Rejected(t ca.Token) {
	for _, source := range o.Sources {
		rejected(source, t)
	}
}

func rejected(source Source, t ca.Token) {
	if r, ok := source.(interface{ Rejected(ca.Token) }); ok {
		r.Rejected(t)
	}
}

// describe names a source for use in a sentence.
func describe(source Source) string {
	if s, ok := source.(interface{ String() string }); ok {
		return s.String()
	}
	return "a token"
}
