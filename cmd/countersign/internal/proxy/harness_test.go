package proxy

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
)

// patience is how long a test waits for what real processes do.
const patience = 2 * time.Minute

func path() string { return "PATH=" + os.Getenv("PATH") }

// world launches children that tests control, in a bubble whose time is theirs.
type world struct {
	mu       sync.Mutex
	children []*fakeChild
	refuse   error             // what a start ends with
	stubborn bool              // children ignore SIGTERM
	commands []command.Program // that were run
	failing  error             // what a command ends with
	slow     time.Duration
	files    string // the digest of the watched folders
	zones    []string
	asked    int // for a zone

	p       *Proxy
	signals chan os.Signal
	ready   chan struct{}
	stop    context.CancelFunc
	code    chan int
}

// fakeChild ends by SIGTERM with 0, as Envoy does.
type fakeChild struct {
	start
	w       *world
	pid     int
	began   time.Time
	signals []os.Signal
	drained bool
	ended   chan struct{}
	once    sync.Once
	exit    exit
}

func (f *fakeChild) PID() int               { return f.pid }
func (f *fakeChild) Ended() <-chan struct{} { return f.ended }
func (f *fakeChild) Exit() exit             { return f.exit }
func (f *fakeChild) Kill()                  { f.end(exit{code: 137, signal: syscall.SIGKILL}) }
func (f *fakeChild) Listens() bool          { f.w.mu.Lock(); defer f.w.mu.Unlock(); return !f.drained }

func (f *fakeChild) end(e exit) { f.once.Do(func() { f.exit = e; close(f.ended) }) }

func (f *fakeChild) Signal(s os.Signal) error {
	f.w.mu.Lock()
	f.signals = append(f.signals, s)
	f.w.mu.Unlock()
	if s == syscall.SIGTERM && !f.w.stubborn {
		f.end(exit{})
	}
	return nil
}

// drain is what an Envoy does that a next epoch has taken over from.
func (f *fakeChild) drain() { f.w.mu.Lock(); defer f.w.mu.Unlock(); f.drained = true }

// got returns the signals so far.
func (f *fakeChild) got() []os.Signal {
	synctest.Wait()
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return slices.Clone(f.signals)
}

func (w *world) launch(s start) (child, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		return nil, w.refuse
	}
	f := &fakeChild{start: s, w: w, pid: 100 + len(w.children), began: time.Now(), ended: make(chan struct{})}
	w.children = append(w.children, f)
	if i := slices.Index(s.argv, "--base-id-path"); i >= 0 {
		if err := os.WriteFile(s.argv[i+1], []byte("4711"), 0o600); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (w *world) run(ctx context.Context, c command.Program) error {
	w.mu.Lock()
	w.commands = append(w.commands, c)
	slow := w.slow
	w.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failing
}

func (w *world) digest() string { w.mu.Lock(); defer w.mu.Unlock(); return w.files }

// find takes a second for the next of zones; "" is a failed try.
func (w *world) find(context.Context) (string, error) {
	time.Sleep(time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if len(w.zones) == 0 {
		return "", errors.New("nobody answers")
	}
	zone := w.zones[0]
	w.zones = w.zones[1:]
	if zone == "" {
		return "", errors.New("not yet")
	}
	return zone, nil
}

func (w *world) change(files string) { w.set(func() { w.files = files }) }

func (w *world) set(do func()) { w.mu.Lock(); defer w.mu.Unlock(); do() }

// all returns the children so far, when nothing moves any more.
func (w *world) all() []*fakeChild {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.children)
}

func (w *world) last() *fakeChild {
	all := w.all()
	return all[len(all)-1]
}

// starts demands that so many children were started.
func (w *world) starts(t *testing.T, want int) {
	t.Helper()
	if got := len(w.all()); got != want {
		t.Fatalf("%d were started, want %d; status %+v", got, want, w.p.Status())
	}
}

// ran returns the commands so far.
func (w *world) ran() []command.Program {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.commands)
}

// ends has the latest child end, and lets all happen that follows at once.
func (w *world) ends(code int) { w.last().end(exit{code: code}); synctest.Wait() }

// inBubble runs a proxy and, when the test is through, ends it and sees that nothing
// is left.
func inBubble(t *testing.T, cfg Config, test func(t *testing.T, w *world)) {
	t.Helper()
	cfg.RuntimeDir = t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{signals: make(chan os.Signal), ready: make(chan struct{}), code: make(chan int, 1)}
		w.zones = strings.Split(cfg.Locality.Value, ",")
		cfg.Command = append([]string{"true"}, cfg.Command...)
		cfg.StopTimeout, cfg.Signals, cfg.Log = 10*time.Second, w.signals, slog.New(slog.NewTextHandler(t.Output(), nil))
		cfg.Ready = func(ctx context.Context) error {
			select {
			case <-w.ready:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		p, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.launch, p.run, p.digest, p.find = w.launch, w.run, w.digest, w.find
		w.p = p
		ctx, stop := context.WithCancel(t.Context())
		w.stop = stop
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.code <- p.Run(ctx)
		}()
		test(t, w)
		stop()
		<-done
		for _, f := range w.all() {
			select {
			case <-f.ended:
			default:
				t.Errorf("child %d was left", f.pid)
			}
		}
		if s := p.Status(); s.State != Ended || s.PID != 0 {
			t.Errorf("at the end the status is %+v", s)
		}
		left, err := os.ReadDir(cfg.RuntimeDir)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

// begun is inBubble with a child that runs.
func begun(t *testing.T, cfg Config, test func(t *testing.T, w *world)) {
	t.Helper()
	inBubble(t, cfg, func(t *testing.T, w *world) {
		close(w.ready)
		w.starts(t, 1)
		test(t, w)
	})
}

// ended demands that proxy exited, not restarting it by now, with the code.
func (w *world) ended(t *testing.T, want int) {
	t.Helper()
	synctest.Wait()
	select {
	case got := <-w.code:
		if got != want {
			t.Errorf("the exit code is %d, want %d", got, want)
		}
	default:
		t.Errorf("it has not ended; status %+v", w.p.Status())
	}
}
