package output

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/host/errno"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// minRetry is the wait after a failed write or reload; it doubles up to maxRetry.
const (
	minRetry = time.Second
	maxRetry = time.Minute
)

// Run writes the set once its secrets are available and whenever they change. It returns
// nil when ctx ends, and an error if cfg is invalid. It logs, reports and retries a failed
// write or reload, and keeps the existing files meanwhile.
func Run(ctx context.Context, cfg Config, source secret.Source) error {
	if err := cfg.Check(); err != nil {
		return fmt.Errorf("output %q: %w", cfg.Name, err)
	}
	w := &writer{Config: cfg.withDefaults(), source: source, changed: make(chan struct{}, 1)}
	stop, err := w.watch()
	if err != nil {
		return fmt.Errorf("output %q: %w", cfg.Name, err)
	}
	defer stop()
	w.run(ctx)
	return nil
}

// writer is one output. Its goroutine, run, owns its state.
type writer struct {
	Config
	source  secret.Source
	changed chan struct{}

	written set // the last set written
	writes  failures
	number  string    // for the next set behind the link
	due     bool      // a reload is due
	last    time.Time // start of the last reload
	reloads failures
}

// failures tracks consecutive failures.
type failures struct {
	said string        // text of the last one
	wait time.Duration // the wait after it
}

// failed returns the wait before the next try, and whether the error is new.
func (f *failures) failed(err error) (wait time.Duration, news bool) {
	news = f.said != err.Error()
	*f = failures{err.Error(), min(max(minRetry, 2*f.wait), maxRetry)}
	return f.wait, news
}

func (w *writer) watch() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for _, name := range append([]string{w.Pair, w.Bundle}, slices.Collect(maps.Values(w.Federated))...) {
		if name == "" {
			continue
		}
		one, err := w.source.Watch(secret.Caller{}, name, w.notify)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	return stop, nil
}

func (w *writer) notify(string) {
	select {
	case w.changed <- struct{}{}:
	default: // a notice is pending
	}
}

func (w *writer) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		case <-timer.C:
		}
		wait := w.write()
		if w.due {
			wait = min(wait, w.reload(ctx))
		}
		timer.Reset(wait)
	}
}

// idle is how long to wait if there is no notice.
const idle = time.Hour

// write writes the held secrets if they have changed and returns when to try again.
func (w *writer) write() time.Duration {
	now, ok := w.peek()
	if !ok || now.same(w.written) {
		return idle
	}
	if err := errno.Explain(w.put(now)); err != nil {
		wait, news := w.writes.failed(err)
		if news {
			w.Log.Error("cannot write files, keeping the existing ones", "folder", w.Folder, "error", err, "next_try", wait)
		}
		w.tellFailure(WriteFailed, err, wait)
		return wait
	}
	w.written, w.writes = now, failures{}
	w.due, w.reloads = w.Reload != nil, failures{}
	w.Log.Info("files written", "folder", w.Folder, "secret", now.what())
	w.Observe(Event{Output: w.Name, Type: Written, NotAfter: now.notAfter(), Partial: now.partial(), Due: now.due()})
	return idle
}

// reload calls Reload unless it just did, and returns when to try again.
func (w *writer) reload(ctx context.Context) time.Duration {
	pause := max(w.Pause, w.reloads.wait)
	if wait := pause - time.Since(w.last); !w.last.IsZero() && wait > 0 {
		return wait
	}
	w.last = time.Now()
	err := errno.Explain(w.Reload(ctx, w.Log))
	switch {
	case ctx.Err() != nil:
		return idle // it was interrupted; the next start reloads
	case err != nil:
		// A program that does not reload keeps presenting an expiring certificate.
		wait, news := w.reloads.failed(err)
		wait = max(w.Pause, wait)
		if news {
			w.Log.Error("cannot reload consumer", "error", err, "next_try", wait)
		}
		w.tellFailure(ReloadFailed, err, wait)
		return wait
	}
	w.due, w.reloads = false, failures{}
	w.Log.Info("reloaded consumer")
	w.Observe(Event{Output: w.Name, Type: Reloaded, Partial: w.written.partial(), Due: w.written.due()})
	return idle
}

func (w *writer) peek() (s set, ok bool) {
	for _, one := range []struct {
		name string
		item **secret.Item
	}{{w.Pair, &s.pair}, {w.Bundle, &s.bundle}} {
		if one.name == "" {
			continue
		}
		item, err := w.source.Peek(secret.Caller{}, one.name)
		if err != nil {
			return set{}, false // a notice will follow
		}
		*one.item = item
	}
	s.foreign = w.peekForeign()
	return s, true
}

// set holds the items that the files are made from.
type set struct {
	pair, bundle *secret.Item
	foreign      map[string]*secret.Item // by trust domain; nil if not held
}

func (s set) empty() bool { return s.pair == nil && s.bundle == nil }

// partial reports whether a foreign trust bundle is not held yet.
func (s set) partial() bool {
	return slices.Contains(slices.Collect(maps.Values(s.foreign)), nil)
}

// due reports whether the certificate is to be renewed now.
func (s set) due() bool {
	return s.pair != nil && !s.pair.RenewAt.IsZero() && !s.pair.RenewAt.After(time.Now())
}

func (s set) same(other set) bool {
	return sameItem(s.pair, other.pair) && sameItem(s.bundle, other.bundle) && maps.EqualFunc(s.foreign, other.foreign, sameItem)
}

func sameItem(a, b *secret.Item) bool {
	return a == b || a != nil && b != nil && a.Version == b.Version
}

// notAfter is when the certificate of the set expires, or without one its roots.
func (s set) notAfter() time.Time {
	if s.pair != nil {
		return s.pair.NotAfter
	}
	return s.bundle.NotAfter
}

func (s set) what() string {
	if s.pair != nil {
		return s.pair.String()
	}
	return s.bundle.String()
}
