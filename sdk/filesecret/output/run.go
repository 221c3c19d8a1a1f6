package output

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// minRetry is how long after a failed write or reload the next one comes; it doubles
// up to maxRetry.
const (
	minRetry = time.Second
	maxRetry = time.Minute
)

// Run writes the set when its secrets are there, and whenever they change, until
// ctx ends; then it returns nil. A failed write or reload is logged, told and tried
// again, and what was there stays.
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

// writer is one output. Its goroutine, run, owns it.
type writer struct {
	Config
	source  secret.Source
	changed chan struct{}

	written set // the last one
	writes  failures
	number  string    // of the next set behind the link
	due     bool      // a reload is
	last    time.Time // when the last one began
	reloads failures
}

// failures are those in a row.
type failures struct {
	said string        // the last of them
	wait time.Duration // after it
}

// failed returns when to try again, and whether the failure is another than the last.
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
	for _, name := range []string{w.Pair, w.Bundle} {
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
	default: // it is known already
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

// idle is how long nothing is looked at without a notice.
const idle = time.Hour

// write writes what is held, if it is other than what was written, and returns
// when to try again.
func (w *writer) write() time.Duration {
	now, ok := w.peek()
	if !ok || now.same(w.written) {
		return idle
	}
	if err := w.put(now); err != nil {
		wait, news := w.writes.failed(err)
		if news {
			w.Log.Error("cannot write files, keeping the existing ones", "folder", w.Folder, "error", err, "next_try", wait)
		}
		w.tell(WriteFailed)
		return wait
	}
	w.written, w.writes = now, failures{}
	w.due, w.reloads = w.Reload != nil, failures{}
	w.Log.Info("files written", "folder", w.Folder, "files", len(w.Files), "secret", now.what())
	w.tell(Written)
	return idle
}

// reload tells the program, unless it was told a moment ago, and returns when it
// is time.
func (w *writer) reload(ctx context.Context) time.Duration {
	pause := max(w.Pause, w.reloads.wait)
	if wait := pause - time.Since(w.last); !w.last.IsZero() && wait > 0 {
		return wait
	}
	w.last = time.Now()
	err := w.Reload(ctx, w.Log)
	switch {
	case ctx.Err() != nil:
		return idle // it was cut short, or comes with the next start
	case err != nil:
		// A program that was not told goes on to show a certificate that ends.
		wait, news := w.reloads.failed(err)
		wait = max(w.Pause, wait)
		if news {
			w.Log.Error("cannot reload consumer", "error", err, "next_try", wait)
		}
		w.tell(ReloadFailed)
		return wait
	}
	w.due, w.reloads = false, failures{}
	w.Log.Info("reloaded consumer")
	w.tell(Reloaded)
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
			return set{}, false // a notice will come
		}
		*one.item = item
	}
	return s, true
}

// set is what the files are made from.
type set struct{ pair, bundle *secret.Item }

func (s set) same(other set) bool {
	return sameItem(s.pair, other.pair) && sameItem(s.bundle, other.bundle)
}

func sameItem(a, b *secret.Item) bool {
	return a == b || a != nil && b != nil && a.Version == b.Version
}

func (s set) what() string {
	if s.pair != nil {
		return s.pair.String()
	}
	return s.bundle.String()
}
