package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// admin is an admin address that tests control.
type admin struct {
	mu    sync.Mutex
	asked []string
	hangs bool
	err   error
	open  string // its statistics of open connections
}

func (a *admin) ask(ctx context.Context, method, path string) (string, error) {
	path, _, _ = strings.Cut(path, "&")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, method+" "+path)
	if a.hangs {
		ctx, cancel := context.WithTimeout(ctx, adminTimeout)
		defer cancel()
		<-ctx.Done()
		return "", ctx.Err()
	}
	return a.open, a.err
}

// draining runs a proxy whose admin address is a, and stops it.
func draining(t *testing.T, d Drain, a *admin, test func(t *testing.T, w *world)) {
	t.Helper()
	d.Admin = "unix:admin"
	begun(t, Config{Drain: d, Restart: Always, RestartLimit: 5}, func(t *testing.T, w *world) {
		w.p.ask = a.ask
		w.stop()
		synctest.Wait()
		test(t, w)
	})
}

// endsAfter demands that SIGTERM comes at that time and not before.
func (w *world) endsAfter(t *testing.T, at time.Duration) {
	t.Helper()
	time.Sleep(at - time.Millisecond)
	if s := w.p.Status(); s.State != Draining || len(w.last().got()) > 0 {
		t.Fatalf("before %s it got %v, and its state is %s", at, w.last().got(), s.State)
	}
	time.Sleep(time.Millisecond)
	w.ended(t, 0)
	if got := w.last().got(); len(got) != 1 || got[0] != syscall.SIGTERM {
		t.Errorf("after %s it got %v", at, got)
	}
}

func TestStopDrainsProxyForItsTime(t *testing.T) {
	for name, a := range map[string]*admin{"answers": {}, "is away": {err: errors.New("no such file")}, "hangs": {hangs: true}} {
		t.Run(name, func(t *testing.T) {
			draining(t, Drain{Time: 5 * time.Second}, a, func(t *testing.T, w *world) {
				w.endsAfter(t, 5*time.Second)
				if len(a.asked) != 1 || a.asked[0] != "POST /drain_listeners?graceful" {
					t.Errorf("it was asked %q", a.asked)
				}
			})
		})
	}
}

func TestIdleProxyEndsItsDrainEarly(t *testing.T) {
	const long = time.Hour
	a := &admin{open: "listener.0.0.0.0_80.downstream_cx_active: 2\nlistener.admin.downstream_cx_active: 1\n"}
	draining(t, Drain{Time: long, WhenIdle: true, MinTime: 3 * time.Second}, a, func(t *testing.T, w *world) {
		time.Sleep(time.Minute - time.Second)
		if s := w.p.Status(); s.State != Draining {
			t.Errorf("with open connections the state is %s", s.State)
		}
		a.mu.Lock()
		a.open = "listener.0.0.0.0_80.downstream_cx_active: 0\nlistener.admin.downstream_cx_active: 1\n"
		a.mu.Unlock()
		time.Sleep(idleInterval)
		w.ended(t, 0)
	})
	draining(t, Drain{Time: long, WhenIdle: true, MinTime: 3 * time.Second}, &admin{}, func(t *testing.T, w *world) {
		w.endsAfter(t, 3*time.Second)
	})
	for name, a := range map[string]*admin{
		"lies": {open: "<html>"}, "never idle": {open: "listener.a.downstream_cx_active: 1\n"}, "fails": {err: errors.New("500")}, "hangs": {hangs: true},
		"says nonsense": {open: "listener.a.downstream_cx_active: -1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			draining(t, Drain{Time: 20 * time.Second, WhenIdle: true}, a, func(t *testing.T, w *world) { w.endsAfter(t, 20*time.Second) })
		})
	}
}

func TestProxyThatEndsInItsDrainIsNotAwaited(t *testing.T) {
	draining(t, Drain{Time: time.Hour}, &admin{}, func(t *testing.T, w *world) {
		w.ends(3)
		w.ended(t, 3)
		w.starts(t, 1)
	})
}

func TestNothingIsDrainedWithoutProxy(t *testing.T) {
	a := &admin{}
	inBubble(t, Config{Drain: Drain{Admin: "unix:admin", Time: time.Hour}}, func(t *testing.T, w *world) {
		w.p.ask = a.ask
		w.stop()
		w.ended(t, 0)
	})
	if len(a.asked) > 0 {
		t.Errorf("it was asked %q", a.asked)
	}
}

func TestReplacedEpochIsDrainedToo(t *testing.T) {
	begun(t, Config{Watch: Watch{Folders: []string{"/etc"}, Interval: time.Second}, Reload: Reload{HotRestart: true, Timeout: time.Minute}, Drain: Drain{Admin: "unix:admin", Time: time.Minute}}, func(t *testing.T, w *world) {
		w.p.ask = (&admin{}).ask
		w.change("new")
		time.Sleep(time.Minute)
		w.starts(t, 2)
		w.stop()
		time.Sleep(time.Minute - time.Millisecond)
		for _, child := range w.all() {
			if got := child.got(); len(got) > 0 {
				t.Errorf("child %d got %v", child.pid, got)
			}
		}
		time.Sleep(time.Millisecond)
		w.ended(t, 0)
	})
}

func TestAdminAddressIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /drain_listeners", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "OK\n") })
	mux.HandleFunc("/flood", func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/drain_listeners", http.StatusFound)
	})
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	server.Start()
	defer server.Close()

	d := Drain{Admin: "unix:" + path}
	if got, err := d.ask(t.Context(), http.MethodPost, "/drain_listeners?graceful"); err != nil || got != "OK\n" {
		t.Errorf("the answer is %q, %v", got, err)
	}
	for what, want := range map[string]string{"/flood": "more than", "/elsewhere": "302", "/nothing": "404"} {
		if _, err := d.ask(t.Context(), http.MethodGet, what); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", what, err, want)
		}
	}
	if got, err := (Drain{Admin: l.Addr().String() + "-not"}).ask(t.Context(), http.MethodGet, "/"); err == nil {
		t.Errorf("no reply on %q", got)
	}
}
