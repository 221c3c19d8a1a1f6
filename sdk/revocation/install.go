package revocation

import (
	"cmp"
	"context"

	"github.com/countersign-dev/countersign/internal/host/filewatch"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// install makes these the bundles. New ones have read their files before a caller can ask for them.
// After Close it only stops what runs.
func (s *Set) install(specs []Bundle) {
	before, next := s.current(), make(map[string]*bundle)
	for _, spec := range specs {
		if b := before[spec.Name]; b != nil && b.spec.same(spec) {
			next[spec.Name] = b
			continue
		}
		next[spec.Name] = s.newBundle(spec, before[spec.Name])
	}
	s.watchFiles(specs) // first, so that no change falls between the watch and the first read
	for name, b := range next {
		if before[name] != b {
			b.read()
			b.judge()
		}
	}
	for name, b := range before {
		if next[name] != b {
			b.stop()
		}
	}
	if s.ctx.Err() != nil {
		return // who still asks gets what there was
	}
	s.mu.Lock()
	s.bundles = next
	s.mu.Unlock()
	for name, b := range next {
		if before[name] != b {
			b.begin(s.ctx)
		}
	}
	s.look()
	for name := range before {
		if next[name] == nil {
			s.notify(name)
		}
	}
}

func (s *Set) watchFiles(specs []Bundle) {
	if s.files != nil {
		s.files.Close()
		s.files = nil
	}
	if len(specs) == 0 {
		return
	}
	var paths []string
	for _, spec := range specs {
		paths = append(paths, spec.Files...)
	}
	s.files = filewatch.New(filewatch.Options{Debounce: s.cfg.Debounce, Poll: s.cfg.Poll, NoEvents: s.cfg.NoEvents, Log: s.cfg.Log}, paths...)
}

// newBundle takes over from before, which may be nil, what it held: a list is replaced only by a
// later one.
func (s *Set) newBundle(spec Bundle, before *bundle) *bundle {
	spec.Stale = cmp.Or(spec.Stale, Keep)
	b := &bundle{
		spec: spec, source: s.source, now: s.cfg.Now, observe: s.cfg.Observe, log: s.cfg.Log.With("secret", spec.Name),
		notify: func() { s.notify(spec.Name) }, wake: s.wake, renew: s.cfg.Renew, replies: make([]reply, len(spec.Feeds)),
	}
	for i, feed := range spec.Feeds {
		b.feeds = append(b.feeds, &listener{feed: feed, take: func(lists []byte, err error) {
			b.hear(i, lists, err)
			s.wake()
		}})
	}
	if before != nil {
		b.follows(before)
	}
	return b
}

func (b *bundle) follows(before *bundle) {
	before.mu.Lock()
	defer before.mu.Unlock()
	b.contents, b.held, b.served, b.renewing = before.contents, before.held, before.served, before.renewing
	for i, feed := range b.spec.Feeds {
		for j, other := range before.spec.Feeds {
			if feed.Name == other.Name {
				b.replies[i] = before.replies[j]
			}
		}
	}
}

// begin follows the feeds and the source until stop.
func (b *bundle) begin(ctx context.Context) {
	ctx, b.cancel = context.WithCancel(ctx)
	for _, l := range b.feeds {
		b.heard.Go(func() { l.run(ctx) })
	}
	for _, name := range append([]string{b.spec.Name}, b.spec.Chains...) {
		// A name that the source does not know needs no watch.
		if stop, err := b.source.Watch(secret.Caller{}, name, func(string) { b.wake() }); err == nil {
			b.stops = append(b.stops, stop)
		}
	}
}

func (b *bundle) stop() {
	b.cancel()
	for _, stop := range b.stops {
		stop()
	}
	b.heard.Wait()
}
