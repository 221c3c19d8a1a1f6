package token

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Ordered is several sources, or one, of which the first is used that has a token
// which has not expired.
type Ordered struct {
	// Sources have a name each, for the log. At least one is required.
	Sources []Source
	// Now is the wall clock. Default: that of this machine.
	Now func() time.Time
	// Log is told of a source that was passed over. Default: silent.
	Log *slog.Logger
}

// Token returns the first good token. Where there is none it is an error that says
// why of each source, unless one of them needs none.
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
	if text := sentences(failures); text != "" && o.Log != nil {
		o.Log.Warn("token source skipped", "error", text)
	}
}

// dry is the error of sources none of which has a token: nil where one needs none.
// The first one's reason counts, as it is the one that is meant to work.
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

// sentences is the failures on one line.
func sentences(failures []error) string {
	var all []string
	for _, err := range failures {
		if err != nil {
			all = append(all, err.Error())
		}
	}
	return strings.Join(all, "; ")
}

// Rejected tells the sources.
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

// describe names a source in a sentence.
func describe(source Source) string {
	if s, ok := source.(interface{ String() string }); ok {
		return s.String()
	}
	return "a token"
}
