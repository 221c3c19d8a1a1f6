package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func watchChecks() []Check {
	first := []string{"WATCH-01"} // and so the ability
	return []Check{
		{"WATCH-01", RootWatch, "A watch sends the current roots immediately.", "The host waits for them after it connects.", []string{"SET-06", "META-08"}, watchTellsAtOnce},
		{"WATCH-02", RootWatch, "A watch sends self-signed CA certificates, at least one.", "An empty set would remove all trust.", first, watchTellsRoots},
		{"WATCH-03", RootWatch, "A watch and a call return the same roots.", "The host uses whichever comes first.", []string{"WATCH-02", "ROOT-03", "ROOT-06", "ROOT-07"}, watchAgrees},
		{"WATCH-04", RootWatch, "A watch stays open while nothing changes.", "The host reopens a watch that ended, forever.", first, watchGoesOn},
		{"WATCH-05", RootWatch, "A watch does not repeat an unchanged set.", "Each set may be sent to every workload.", []string{"WATCH-02", "WATCH-04"}, watchDoesNotRepeat},
		{"WATCH-06", RootWatch, "A cancelled watch ends within 250 ms.", "The host waits for it when it stops.", first, watchEnds},
		{"WATCH-07", RootWatch, "Two concurrent watches are both served.", "A reload briefly has two.", first, twoWatches},
		{"WATCH-08", RootWatch, "Without settings it returns not configured.", "The host then sends the settings.", nil, watchUnconfigured},
		{"WATCH-09", RootWatch, "After new settings, a new watch is served; if an earlier one ended, it returned unavailable.", "The host reopens it.", []string{"WATCH-01", "SET-17"}, watchAfterSettings},
		{"WATCH-10", RootWatch, "A watch ends if its messages are not received.", "Otherwise it runs forever without use.", first, watchEndsWithItsTaker},
	}
}

// quiet is how long a watch with no events is observed.
const quiet = time.Second

// watching is a watch and its results.
type watching struct {
	told chan []byte
	over chan struct{} // closed when the watch ends
	err  error         // its final error
	end  context.CancelFunc
	// patience is how long to wait for the first set.
	patience time.Duration
}

func (s *Session) watch(ctx context.Context, client ca.RootWatcher) *watching {
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{told: make(chan []byte, 1000), over: make(chan struct{}), end: cancel, patience: time.Duration(s.Kit.CallTimeout)}
	go func() {
		defer close(w.over)
		w.err = client.WatchRoots(ctx, func(roots []byte) error {
			select {
			case w.told <- roots:
			default: // a thousand prove the point
			}
			return nil
		})
	}()
	return w
}

// close cancels the watch and gives it time to end. Another check judges how it ends.
func (w *watching) close() {
	w.end()
	until(promptness, w.ended)
}

func (w *watching) ended() bool { return closed(w.over) }

// first waits for the first set. It counts even if the watch has ended since.
func (w *watching) first() ([]byte, error) {
	select {
	case roots := <-w.told:
		return roots, nil
	case <-w.over:
	case <-time.After(w.patience):
	}
	select {
	case roots := <-w.told:
		return roots, nil
	default:
	}
	if w.ended() {
		return nil, fmt.Errorf("the watch ended with %w", orNone(w.err))
	}
	return nil, fmt.Errorf("nothing came within %s", w.patience)
}

// firstWithToken waits for the first set of an unused instance: if a token is required,
// its only token for fetching roots may come from a signing request.
func (s *Session) firstWithToken(ctx context.Context, i *Instance, w *watching) error {
	if s.tokenRequired() {
		_ = s.SignOnce(ctx, i) // another check covers whether it signs
	}
	_, err := w.first()
	return err
}

// watched starts a watch on the shared instance.
func (s *Session) watched(ctx context.Context) (*watching, error) {
	i, err := s.having(ctx, wire.RootWatcher)
	if err != nil {
		return nil, err
	}
	return s.watch(ctx, i), nil
}

// firstOfWatch starts a watch and ends it after its first set.
func (s *Session) firstOfWatch(ctx context.Context) ([]byte, error) {
	w, err := s.watched(ctx)
	if err != nil {
		return nil, err
	}
	defer w.close()
	return w.first()
}

// anotherWatch is the control for watches: it opens one and waits for its first set.
func (s *Session) anotherWatch(ctx context.Context) func() {
	return func() { _, _ = s.firstOfWatch(ctx) }
}

func watchTellsAtOnce(ctx context.Context, s *Session) error {
	_, err := s.firstOfWatch(ctx)
	return err
}

func watchTellsRoots(ctx context.Context, s *Session) error {
	text, err := s.firstOfWatch(ctx)
	if err == nil {
		_, err = pki.ParseBundle(text)
	}
	return err
}

func watchAgrees(ctx context.Context, s *Session) error {
	text, err := s.firstOfWatch(ctx)
	if err != nil {
		return err
	}
	told, err := s.toldBundle(ctx)
	if err != nil {
		return err
	}
	watched, err := pki.ParseBundle(text)
	if err == nil && !watched.Equal(told) {
		return fmt.Errorf("the watch returns %v, the call %v", watched.Fingerprints(), told.Fingerprints())
	}
	return err
}

func watchGoesOn(ctx context.Context, s *Session) error {
	w, err := s.watched(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	if _, err := w.first(); err != nil {
		return err
	}
	if inTime(quiet, s.anotherWatch(ctx), w.ended) {
		return fmt.Errorf("it ended with %w", orNone(w.err))
	}
	return nil
}

func watchDoesNotRepeat(ctx context.Context, s *Session) error {
	w, err := s.watched(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	first, err := w.first()
	if err != nil {
		return err
	}
	if inTime(quiet, s.anotherWatch(ctx), func() bool { return len(w.told) > 0 }) {
		return sameAgainTold(first, <-w.told)
	}
	return nil
}

func sameAgainTold(first, next []byte) error {
	before, err := pki.ParseBundle(first)
	if err != nil {
		return err
	}
	after, err := pki.ParseBundle(next)
	if err == nil && before.Equal(after) {
		return fmt.Errorf("%v came twice", before.Fingerprints())
	}
	return err
}

func watchEnds(ctx context.Context, s *Session) error {
	i, err := s.having(ctx, wire.RootWatcher)
	if err != nil {
		return err
	}
	return s.watchEnds(ctx, i, i)
}

// watchEnds checks that a cancelled watch of the client, which i serves, ends in time.
func (s *Session) watchEnds(ctx context.Context, i *Instance, client ca.RootWatcher) error {
	if i.Conn != nil && i.Busy == nil {
		return NotRun("a process does not show how long a cancelled watch keeps running")
	}
	return prompt(func() error { return s.watchEndsOnce(ctx, i, client) })
}

func (s *Session) watchEndsOnce(ctx context.Context, i *Instance, client ca.RootWatcher) error {
	w := s.watch(ctx, client)
	defer w.close()
	if _, err := w.first(); err != nil {
		return err
	}
	w.end()
	control := func() {
		another := s.watch(ctx, client)
		defer another.close()
		_, _ = another.first()
	}
	if !inTime(promptness, control, i.ended(w.over)) {
		return fmt.Errorf("it was still running %s later", promptness)
	}
	return nil
}

func twoWatches(ctx context.Context, s *Session) error {
	first, err := s.watched(ctx)
	if err != nil {
		return err
	}
	defer first.close()
	if _, err := first.first(); err != nil {
		return err
	}
	_, err = s.firstOfWatch(ctx)
	return err
}

func watchUnconfigured(ctx context.Context, s *Session) error {
	return unconfigured(ctx, s, wire.RootWatcher)
}

func watchAfterSettings(ctx context.Context, s *Session) error {
	if _, err := s.having(ctx, wire.RootWatcher); err != nil {
		return err
	}
	i, err := s.FreshReady(ctx)
	if err != nil {
		return err
	}
	earlier := s.watch(ctx, i)
	defer earlier.close()
	if err := s.firstWithToken(ctx, i, earlier); err != nil {
		return err
	}
	if err := i.Configure(ctx, s.Kit.Settings); err != nil {
		return err
	}
	later := s.watch(ctx, i)
	defer later.close()
	if err := s.firstWithToken(ctx, i, later); err != nil {
		return fmt.Errorf("the new watch: %w", err)
	}
	// It may have ended, but only with unavailable.
	if inTime(quiet, s.anotherWatch(ctx), earlier.ended) && (earlier.err == nil || ca.ActionFor(earlier.err) != ca.Wait) {
		return fmt.Errorf("the earlier watch ended with %w", orNone(earlier.err))
	}
	return nil
}

func watchEndsWithItsTaker(ctx context.Context, s *Session) error {
	i, err := s.having(ctx, wire.RootWatcher)
	if err != nil {
		return err
	}
	if i.Conn != nil {
		return NotRun("over the boundary the host cancels a watch that is not read")
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	full := errors.New("nobody takes it")
	if err := i.WatchRoots(ctx, func([]byte) error { return full }); !errors.Is(err, full) {
		return fmt.Errorf("it ended with %w", orNone(err))
	}
	return nil
}
