package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// world launches lives that tests control, in a bubble whose time is theirs.
type world struct {
	mu        sync.Mutex
	lives     []*fakeLife
	plans     int // that are open
	asked     int
	refuse    error // what a start ends with
	backCA    chan struct{}
	later     string         // what later lives are; empty: what their settings say
	abilities []wire.Ability // of every life
	facts     ca.Facts       // of every life
	broken    int            // so many lives end before their handshake
	isDue     bool           // a certificate is
	end       time.Time      // of that one; zero: none is held
	takes     func(f *fakeLife, password string) error
	p         *Provider
}

func (w *world) due() (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.end, w.isDue
}

// needs means that a certificate is due, and when it ends.
func (w *world) needs(end time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end, w.isDue = end, true
}

// needsNothing takes needs back.
func (w *world) needsNothing() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end, w.isDue = time.Time{}, false
}

// fakeLife behaves by "is" in its settings.
type fakeLife struct {
	wire.Provider
	w       *world
	is      string
	ended   chan struct{}
	once    sync.Once
	reason  error
	stopped int
	calls   atomic.Int32
	checked int // how often its settings were validated
	hidden  []ca.Token
	given   []string // passwords
	hold    chan struct{}

	readied, configured, configuring, overlapped atomic.Int32
	forgot                                       atomic.Bool // it has lost its settings
}

func (f *fakeLife) end(reason error) {
	f.once.Do(func() { f.reason = reason; close(f.ended) })
}
func (f *fakeLife) Ended() <-chan struct{} { return f.ended }
func (f *fakeLife) Err() error             { return f.reason }
func (f *fakeLife) Kill(reason error)      { f.end(reason) }

func (f *fakeLife) Ready(context.Context) error {
	f.readied.Add(1)
	if f.forgot.Load() {
		return ca.ErrNotConfigured
	}
	return nil
}
func (f *fakeLife) Hide(values []ca.Token) { f.hidden = append(f.hidden, values...) }

func (f *fakeLife) Report() process.Report {
	return process.Report{Metadata: wire.Metadata{Abilities: f.w.abilities, Facts: f.w.facts}}
}

func (f *fakeLife) Connect(ctx context.Context) error {
	if f.is == "mute" {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-f.ended:
		return f.reason
	case <-time.After(10 * time.Millisecond):
		return nil
	}
}

func (f *fakeLife) Health(ctx context.Context) error {
	if f.is == "stuck" {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *fakeLife) Stop(context.Context) {
	f.stopped++
	f.end(errors.New("stopped"))
}

func (f *fakeLife) Metadata(context.Context) (wire.Metadata, error) {
	return wire.Metadata{Name: "fake"}, nil
}

func (f *fakeLife) Validate(context.Context, map[string]any) ([]wire.Diagnostic, error) {
	f.checked++
	return nil, nil
}

func (f *fakeLife) ValidateOnline(ctx context.Context, settings map[string]any) ([]wire.Diagnostic, error) {
	found, _ := f.Validate(ctx, settings)
	return found, ca.ErrUnimplemented
}

func (f *fakeLife) Configure(ctx context.Context, settings map[string]any) error {
	f.configured.Add(1)
	if f.configuring.Add(1) > 1 {
		f.overlapped.Add(1)
	}
	runtime.Gosched() // no sleep: others wait for a mutex, which is not durable in a bubble
	f.configuring.Add(-1)
	f.forgot.Store(false)
	if password, ok := settings["password"].(string); ok {
		f.w.mu.Lock()
		f.given = append(f.given, password)
		f.w.mu.Unlock()
		return f.w.takes(f, password)
	}
	switch f.is {
	case "wrong":
		return ca.Errorf(ca.Invalid, "these settings are wrong")
	case "hanging":
		<-ctx.Done()
		return ctx.Err()
	case "away":
		select {
		case <-f.w.backCA:
		default:
			return ca.Errorf(ca.Unavailable, "the CA is away")
		}
	}
	return nil
}

func (f *fakeLife) CSRSign(ctx context.Context, _ ca.SignRequest) (ca.Certificate, error) {
	if f.forgot.Load() {
		return ca.Certificate{}, ca.ErrNotConfigured
	}
	f.calls.Add(1)
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return ca.Certificate{}, ctx.Err()
		case <-f.ended:
			return ca.Certificate{}, ca.Errorf(ca.Unavailable, "it ended in the middle of a call")
		}
	}
	return ca.Certificate{Chain: []byte(f.is)}, nil
}

func (f *fakeLife) SignJWT(context.Context, ca.JWTRequest) (ca.Token, error) { return "token", nil }
func (f *fakeLife) Roots(context.Context) ([]byte, error)                    { return []byte("roots"), nil }
func (f *fakeLife) Revocations(context.Context) ([]byte, error)              { return []byte("lists"), nil }

func (f *fakeLife) WatchRoots(_ context.Context, changed func([]byte) error) error {
	return changed([]byte("roots"))
}

func (w *world) launch(is string) (instance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.refuse != nil {
		return nil, w.refuse
	}
	if w.later != "" {
		is = w.later
	}
	f := &fakeLife{w: w, is: is, ended: make(chan struct{})}
	w.lives = append(w.lives, f)
	if w.broken > 0 {
		w.broken--
		f.end(errors.New("it ended at its start"))
	}
	return f, nil
}

// planThat launches lives with that "is" in their settings.
func (w *world) planThat(is string) *Plan {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plans++
	return &Plan{
		entry: Entry{Name: "fake", Provider: "fake", Env: map[string]string{"IS": is}}, settings: reference.NewResolver(reference.Options{}, nil),
		launch: func(int) (instance, error) { return w.launch(is) }, use: func() {}, close: w.closePlan,
	}
}

func (w *world) closePlan() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plans--
}

// newWorld makes a supervisor that is not started.
func newWorld(is string) *world {
	w := &world{backCA: make(chan struct{}), abilities: []wire.Ability{wire.RootSource, wire.RootWatcher, wire.RevocationSource, wire.JWTSVID}}
	w.p = supervised(Options{
		StartTimeout: 10 * time.Second, CallTimeout: 30 * time.Second, StopTimeout: 5 * time.Second, HealthInterval: 10 * time.Second,
		MaxCalls: 1000, OnState: func(Status) {}, Log: slog.New(slog.DiscardHandler),
		Due: func(string) (time.Time, bool) { return w.due() },
	}, w.planThat(is))
	w.p.watch.NoEvents = true
	return w
}

// inBubble starts a provider, and afterwards checks that nothing is left of it.
func inBubble(t *testing.T, is string, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(is)
		if err := w.p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(t, w)
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

// close returns what is wrong after the end: every life must be stopped, and every plan closed,
// once.
func (w *world) close() error {
	w.p.Close()
	var err error
	if w.plans != 0 {
		err = fmt.Errorf("%d plans are open", w.plans)
	}
	for i, f := range w.all() {
		if f.stopped != 1 {
			err = errors.Join(err, fmt.Errorf("life %d was stopped %d times", i+1, f.stopped))
		}
	}
	if s := w.p.Status(); s.State != Stopped {
		err = errors.Join(err, fmt.Errorf("at the end it is %s", s.State))
	}
	return err
}

// all returns the lives so far, when nothing moves any more.
func (w *world) all() []*fakeLife {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lives)
}

func (w *world) last() *fakeLife {
	all := w.all()
	return all[len(all)-1]
}

// starts is how often a life was asked for.
func (w *world) starts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

func (w *world) sign(patience time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := w.p.CSRSign(ctx, ca.SignRequest{})
	return string(c.Chain), err
}

func (w *world) mustSign(t *testing.T, want string) {
	t.Helper()
	if got, err := w.sign(time.Minute); err != nil || got != want {
		t.Errorf("signed by %q, %v; want %q", got, err, want)
	}
}

func TestEndedProcessIsReplacedAndCallsWait(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		for range 3 {
			w.last().end(errors.New("it crashed"))
			synctest.Wait()
			if s := w.p.Status(); s.State != Backoff || s.LastError != "it crashed" || s.NextStart.IsZero() {
				t.Errorf("%+v", s)
			}
			w.mustSign(t, "good")
		}
		if s := w.p.Status(); s.Restarts != 3 || s.Generation != 4 || s.LastError != "" {
			t.Errorf("%+v", s)
		}
		if w.all()[0].checked != 1 || w.all()[1].checked != 0 {
			t.Error("settings are checked once for a binary")
		}
	})
}

func TestOpenCircuitFailsCallsAtOnceWithRetryAfter(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		for range crashLimit {
			w.mustSign(t, "good")
			w.last().end(errors.New("it crashed"))
			synctest.Wait()
		}
		before := time.Now()
		_, err := w.sign(time.Minute)
		e, ok := errors.AsType[*ca.Error](err)
		if !ok || e.Reason != ca.Unavailable || e.RetryAfter < probes.First*3/4 || time.Since(before) != 0 {
			t.Errorf("got %v after %s", err, time.Since(before))
		}
		time.Sleep(probes.First*5/4 + time.Second)
		w.last().end(errors.New("again"))
		synctest.Wait()
		if s := w.p.Status(); s.State != CircuitOpen || time.Until(s.NextStart) < 2*probes.First*3/4 {
			t.Errorf("after a probe that failed: %s, next in %s", s.State, time.Until(s.NextStart))
		}
	})
}

func TestProviderMissingThreeHealthChecksIsReplaced(t *testing.T) {
	inBubble(t, "stuck", func(t *testing.T, w *world) {
		first := w.last()
		time.Sleep(healthMisses * (10*time.Second + healthDeadline))
		synctest.Wait()
		if !process.HasEnded(first) || !strings.Contains(first.reason.Error(), "missed 3 health checks") {
			t.Errorf("ended %v: %v", process.HasEnded(first), first.reason)
		}
	})
}

func TestAbsentCARestartsNothing(t *testing.T) {
	inBubble(t, "away", func(t *testing.T, w *world) {
		if _, err := w.sign(time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if w.starts() != 1 {
			t.Errorf("%d starts", w.starts())
		}
		close(w.backCA)
		w.mustSign(t, "away")
	})
}

func TestFailedStartIsErrorOfOpen(t *testing.T) {
	for name, c := range map[string]struct {
		is     string
		refuse error
		want   string
	}{
		"not started": {"good", errors.New("exec format error"), "exec format error"},
		"settings":    {"wrong", nil, "these settings are wrong"},
		"no answer":   {"hanging", nil, "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(c.is)
				w.refuse = c.refuse
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := w.p.Start(ctx); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if err := w.close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestProviderClosedBeforeStartStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("good")
		if err := w.close(); err != nil || w.starts() != 0 {
			t.Errorf("%v, %d starts", err, w.starts())
		}
		if err := w.p.Start(t.Context()); err == nil {
			t.Error("a closed provider was started")
		}
		if _, err := w.sign(time.Second); ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("got %v", err)
		}
	})
}

func TestCallsMoveToReadyGeneration(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		old := w.last()
		old.hold = make(chan struct{})
		inFlight := make(chan error, 1)
		go func() {
			by, err := w.sign(time.Minute)
			inFlight <- errors.Join(err, unless(by == "good", "signed by "+by))
		}()
		synctest.Wait()
		if err := w.reload(t.Context(), w.planThat("better")); err != nil {
			t.Fatal(err)
		}
		w.mustSign(t, "better")
		if process.HasEnded(old) {
			t.Error("the old one ended with a call in flight")
		}
		close(old.hold)
		if err := <-inFlight; err != nil {
			t.Errorf("the call in flight: %v", err)
		}
		synctest.Wait()
		if old.stopped != 1 {
			t.Error("the old one was not stopped")
		}
		if s := w.p.Status(); s.Reloads != 1 || s.Restarts != 0 || s.State != Ready {
			t.Errorf("%+v", s)
		}
		w.last().end(errors.New("it crashed"))
		w.mustSign(t, "better")
	})
}

func TestUnreadyGenerationKeepsOldOne(t *testing.T) {
	for _, is := range []string{"wrong", "hanging", "away"} {
		t.Run(is, func(t *testing.T) {
			inBubble(t, "good", func(t *testing.T, w *world) {
				old := w.last()
				if err := w.reload(t.Context(), w.planThat(is)); err == nil {
					t.Error("it was taken")
				}
				synctest.Wait()
				if s := w.p.Status(); s.State != Ready || s.Generation != 1 || s.LastReload == "" || process.HasEnded(old) {
					t.Errorf("%+v", s)
				}
				w.mustSign(t, "good")
				if err := w.reload(t.Context(), w.planThat("good")); err != nil || w.p.Status().LastReload != "" {
					t.Errorf("settings put back: %v, %q", err, w.p.Status().LastReload)
				}
				if w.starts() != 2 {
					t.Errorf("%d starts; what has not changed needs none", w.starts())
				}
			})
		})
	}
}

func TestNewGenerationClosesCircuit(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		for range crashLimit {
			w.mustSign(t, "good")
			w.last().end(errors.New("it crashed"))
			synctest.Wait()
		}
		if err := w.reload(t.Context(), w.planThat("wrong")); err == nil {
			t.Error("it was taken")
		}
		if s := w.p.Status(); s.State != CircuitOpen {
			t.Errorf("after a bad one: %s", s.State)
		}
		if err := w.reload(t.Context(), w.planThat("better")); err != nil {
			t.Error(err)
		}
		w.mustSign(t, "better")
		if time.Sleep(time.Hour); len(w.all()) != crashLimit+2 {
			t.Errorf("%d lives: the old plan was started again", len(w.all()))
		}
	})
}

func TestCrashDuringSwapIsNoticed(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		done := make(chan error, 1)
		go func() { done <- w.reload(context.Background(), w.planThat("hanging")) }()
		synctest.Wait()
		w.all()[0].end(errors.New("it crashed"))
		if err := <-done; err == nil {
			t.Error("it was taken")
		}
		w.mustSign(t, "good")
	})
}

func TestCloseDuringSwapEndsBoth(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		done := make(chan error, 1)
		go func() { done <- w.reload(context.Background(), w.planThat("hanging")) }()
		synctest.Wait()
		if err := w.close(); err != nil || len(w.all()) != 2 {
			t.Errorf("%v, %d lives", err, len(w.all()))
		}
		if err := <-done; err == nil {
			t.Error("it was taken")
		}
		if err := w.reload(t.Context(), w.planThat("better")); err == nil {
			t.Error("a closed provider was reloaded")
		}
	})
}

func TestCloseGivesUpHangingCall(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		w.last().hold = make(chan struct{})
		failed := make(chan error, 1)
		go func() {
			_, err := w.sign(time.Hour)
			failed <- err
		}()
		synctest.Wait()
		begin := time.Now()
		if err := w.close(); err != nil || time.Since(begin) > 2*w.p.opts.StopTimeout {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		if err := <-failed; err == nil {
			t.Error("it was answered")
		}
	})
}

func unless(ok bool, fault string) error {
	if ok {
		return nil
	}
	return errors.New(fault)
}
