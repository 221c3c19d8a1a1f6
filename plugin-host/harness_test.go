package pluginhost_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const patience = 2 * time.Minute

// install makes this test's binary a provider of that name.
func install(t *testing.T, dir, name string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	to := filepath.Join(dir, "countersign-provider-"+name)
	if err := os.Link(self, to); err == nil {
		return
	}
	copyFile(t, self, to)
}

// copyFile copies a program, with more at its end.
func copyFile(t *testing.T, from, to string, more ...string) {
	t.Helper()
	// A process that another test forks meanwhile would hold the file open for a moment, and a
	// start of it would fail with ETXTBSY.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	in, err := os.Open(from)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	for _, text := range more {
		_, err = out.WriteString(text)
		must(t, err)
	}
	must(t, out.Close())
}

// recorder keeps the log and the states of a provider.
type recorder struct {
	mu      sync.Mutex
	text    strings.Builder
	states  []pluginhost.Status
	changed chan struct{}
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{}, 1)} }

func (r *recorder) tell() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell()
	return r.text.Write(b)
}

func (r *recorder) state(s pluginhost.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = append(r.states, s)
	r.tell()
}

func (r *recorder) log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *recorder) await(t *testing.T, what string, ok func(log string, states []pluginhost.Status) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		found := ok(r.text.String(), r.states)
		r.mu.Unlock()
		if found {
			return
		}
		select {
		case <-r.changed:
		case <-deadline:
			t.Fatalf("waited %s for %s; log:\n%.4000s", patience, what, r.text.String())
		}
	}
}

func (r *recorder) awaitState(t *testing.T, state pluginhost.State, generation int) {
	t.Helper()
	r.await(t, fmt.Sprintf("%s, generation %d", state, generation), func(_ string, states []pluginhost.Status) bool {
		for _, s := range states {
			if s.State == state && s.Generation == generation {
				return true
			}
		}
		return false
	})
}

type host struct {
	dir, runtime string
	rec          *recorder
	opts         pluginhost.Options
}

// newHost makes a host for a test that runs beside others.
func newHost(t *testing.T, names ...string) *host {
	t.Helper()
	t.Parallel()
	return newHostAlone(t, names...)
}

func newHostAlone(t *testing.T, names ...string) *host {
	t.Helper()
	proctest.NeedsProcess(t)
	base, err := os.MkdirTemp("", "host")
	must(t, err)
	h := &host{dir: filepath.Join(base, "bin"), runtime: filepath.Join(base, "run"), rec: newRecorder()}
	for _, dir := range []string{h.dir, h.runtime} {
		must(t, os.Mkdir(dir, 0o755))
	}
	for _, name := range names {
		install(t, h.dir, name)
	}
	t.Cleanup(func() {
		if left, _ := os.ReadDir(h.runtime); len(left) > 0 {
			t.Errorf("left in the runtime folder: %v", left)
		}
		_ = os.RemoveAll(base)
	})
	h.opts = pluginhost.Options{
		Dirs: []string{h.dir}, Dev: true, RuntimeDir: h.runtime, OnState: h.rec.state,
		Log: slog.New(slog.NewTextHandler(h.rec, &slog.HandlerOptions{Level: slog.LevelDebug})),
		// An interpreter takes longer than the default on a busy machine.
		StartTimeout: patience,
	}
	return h
}

func (h *host) open(t *testing.T, entry pluginhost.Entry) *pluginhost.Provider {
	t.Helper()
	p, err := pluginhost.Open(t.Context(), h.opts, entry)
	if err != nil {
		t.Fatalf("%v; log:\n%s", err, h.rec.text.String())
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func request(t *testing.T) ca.SignRequest {
	t.Helper()
	key, err := pki.GenerateKey("")
	must(t, err)
	id, err := pki.NewIdentity("spiffe://example.org/web", nil, nil)
	must(t, err)
	csr, err := pki.CreateCSR(key, id)
	must(t, err)
	return ca.SignRequest{ID: uuid.NewString(), CSR: csr, SubjectID: "spiffe://example.org/web", TTL: time.Hour}
}

func sign(t *testing.T, p ca.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cert, err := p.CSRSign(ctx, request(t))
	must(t, err)
	if _, err := pki.ParseCertificates(cert.Chain); err != nil {
		t.Fatal(err)
	}
}

var must = fatal.If
