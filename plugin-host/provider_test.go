package pluginhost_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/internal/test/polling"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func TestAuthenticationMatchesProviderKind(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]pluginhost.Authentication{"good": pluginhost.Channel, "stock": pluginhost.AutoMTLS, "pinned": pluginhost.PinnedTLS} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, name)
			p := h.open(t, pluginhost.Entry{Name: name})
			sign(t, p)
			if roots, err := p.Roots(t.Context()); err != nil || len(roots) == 0 {
				t.Errorf("roots: %d bytes, %v", len(roots), err)
			}
			if got, err := p.ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: "t"}); err != nil || got.AccessToken.Reveal() != "for-t" {
				t.Errorf("exchange: %v", err)
			}
			s := p.Status()
			if s.Authentication != want || s.State != pluginhost.Ready || s.PID == 0 || s.Metadata.Version != "1" {
				t.Errorf("status %+v", s)
			}
			if cert, err := p.CSRSign(t.Context(), request(t)); err != nil || cert.Signer != s.Metadata.Name+" 1" {
				t.Errorf("signed by %q, %v", cert.Signer, err)
			}
		})
	}
}

func TestKilledProviderRestartsConfigured(t *testing.T) {
	h := newHost(t, "good")
	p := h.open(t, pluginhost.Entry{Name: "good"})
	for generation := 1; generation <= 2; generation++ {
		must(t, syscall.Kill(p.Status().PID, syscall.SIGKILL))
		h.rec.awaitState(t, pluginhost.Backoff, generation)
		sign(t, p) // waits for the next life
	}
	if s := p.Status(); s.Generation != 3 || s.Restarts != 2 {
		t.Errorf("generation %d", s.Generation)
	}
}

// The calls in flight are on one stream, which breaks with the process.
func TestProviderKilledUnderLoadFailsItsCallsAsUnavailable(t *testing.T) {
	h := newHost(t, "good")
	p := h.open(t, pluginhost.Entry{Name: "good"})
	stop := load(t, p, 16)
	for generation := 1; generation <= 2; generation++ {
		sign(t, p)
		must(t, syscall.Kill(p.Status().PID, syscall.SIGKILL))
		h.rec.awaitState(t, pluginhost.Backoff, generation)
		h.rec.awaitState(t, pluginhost.Ready, generation+1)
	}
	sign(t, p)
	calls, failed := stop()
	if len(failed) == 0 || len(failed) == calls {
		t.Errorf("%d of %d calls failed", len(failed), calls)
	}
	for _, err := range failed {
		if !errors.Is(err, ca.ErrUnavailable) {
			t.Error(err)
		}
	}
}

func TestRootWatchContinuesInNextProcess(t *testing.T) {
	h := newHost(t, "good")
	p := h.open(t, pluginhost.Entry{Name: "good"})
	ctx, stop := context.WithCancel(t.Context())
	seen, over := make(chan int, 10), make(chan error, 1)
	go func() {
		over <- p.WatchRoots(ctx, func(roots []byte) error { seen <- len(roots); return nil })
	}()
	for range 2 { // its CA makes a new root in each life
		select {
		case <-seen:
		case <-time.After(patience):
			t.Fatal("no roots")
		}
		must(t, syscall.Kill(p.Status().PID, syscall.SIGKILL))
	}
	stop()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
}

func TestProviderFaultsStayOutOfHost(t *testing.T) {
	t.Parallel()
	for fail, want := range map[string]*ca.Error{"panic": ca.ErrInternal, "die": ca.ErrUnavailable, "hang": ca.ErrDeadline, "huge": ca.ErrInternal} {
		t.Run(fail, func(t *testing.T) {
			h := newHost(t, "good")
			p := h.open(t, pluginhost.Entry{Name: "good", Settings: map[string]any{"fail": fail}})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if fail == "hang" {
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			}
			defer cancel()
			if _, err := p.CSRSign(ctx, request(t)); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if fail == "panic" && p.Status().Generation != 1 {
				t.Error("a panic ended the process")
			}
		})
	}
}

// A session at its CA must end with it: the lifeline alone would have it exit at once.
func TestProviderIsClosedBeforeItEnds(t *testing.T) {
	h := newHost(t, "good")
	h.opts.StopTimeout = 2 * patience // then it would be killed
	closed := filepath.Join(t.TempDir(), "closed")
	p := h.open(t, pluginhost.Entry{Name: "good", Settings: map[string]any{"fail": "close " + closed}})
	began := time.Now()
	must(t, p.Close())
	if _, err := os.Stat(closed); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("it took %s", took)
	}
}

func TestFailedStartIsOneSentence(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"exits":   "exit status 3",
		"silent":  "start timed out after",
		"chatty":  "standard output",
		"forged":  "outside the folder",
		"outside": "outside the folder",
		"version": `speaks protocol version "9"`,
		"other":   `calls itself "another"`,
		"absent":  "is not installed",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			if name != "absent" {
				install(t, h.dir, name)
			}
			if name == "silent" {
				h.opts.StartTimeout = 2 * time.Second
			}
			p, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: name})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if p != nil {
				t.Errorf("Open returned a provider that is %s", p.Status().State)
			}
			if _, missing := errors.AsType[*pluginhost.NotFoundError](err); missing != (name == "absent") {
				t.Errorf("%T", err)
			}
		})
	}
}

func TestWrongSettingsStopStartButAbsentCADoesNot(t *testing.T) {
	h := newHost(t, "good")
	for name, c := range map[string]struct {
		settings map[string]any
		want     string
	}{
		"unknown": {map[string]any{"fial": 1}, "did you mean fail"},
		"type":    {map[string]any{"fail": 1}, "the setting fail is a number"},
		"refused": {map[string]any{"fail": "settings"}, "leave it out"},
	} {
		if _, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: "good", Settings: c.settings}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	p := h.open(t, pluginhost.Entry{Name: "good", Settings: map[string]any{"fail": "away"}})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := p.CSRSign(ctx, request(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call meanwhile: %v", err)
	}
}

func TestOnlyPinnedBinaryRuns(t *testing.T) {
	h := newHost(t, "good")
	h.opts.Dev = false
	found, err := verified.Finder{Dirs: h.opts.Dirs}.Find("good")
	must(t, err)
	sum, err := found.SHA256()
	must(t, err)
	for pin, want := range map[string]string{
		"": "no pin", "xyz": "64 hex digits", strings.Repeat("0", 64): "SHA-256 is " + sum,
	} {
		if _, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: "good", SHA256: pin}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pin %q: got %v, want %q", pin, err, want)
		}
	}
	p := h.open(t, pluginhost.Entry{Name: "good", SHA256: sum})
	// What is at the path now is not what runs after a crash: the verified bytes are.
	must(t, os.Remove(found.Path))
	must(t, os.WriteFile(found.Path, []byte("#!/bin/sh\nexit 1\n"), 0o755))
	must(t, syscall.Kill(p.Status().PID, syscall.SIGKILL))
	h.rec.awaitState(t, pluginhost.Ready, 2)
	sign(t, p)
}

func TestBinaryForOtherArchitectureIsReported(t *testing.T) {
	h := newHost(t, "good")
	path := filepath.Join(h.dir, "countersign-provider-good")
	self, err := os.ReadFile(path)
	must(t, err)
	self[18], self[19] = 0xb7, 0 // e_machine: aarch64
	if runtime.GOARCH == "arm64" {
		self[18] = 0x3e // x86-64
	}
	for name, content := range map[string][]byte{"built for": self, "not a program": []byte("text")} {
		must(t, os.Remove(path))
		must(t, os.WriteFile(path, content, 0o755))
		if _, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: "good"}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

func TestEnvironmentIsScrubbed(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "leak")
	t.Setenv("COUNTERSIGN_TOKEN", "leak")
	h := newHostAlone(t, "good")
	p := h.open(t, pluginhost.Entry{Name: "good", Settings: map[string]any{"fail": "environment"}, Env: map[string]string{"REGION": "here"}})
	_, err := p.CSRSign(t.Context(), request(t))
	if err == nil || strings.Contains(err.Error(), "leak") || strings.Contains(err.Error(), "COUNTERSIGN") {
		t.Errorf("got %v", err)
	}
	for key, want := range map[string]string{"": "not a valid variable name", "PLUGIN_X": "belong to the host", "A=B": "not a valid variable name"} {
		_, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: "good", Env: map[string]string{key: "x"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("env %q: got %v", key, err)
		}
	}
}

func TestProviderGainsNoPrivileges(t *testing.T) {
	h := newHost(t, "good")
	p := h.open(t, pluginhost.Entry{Name: "good", Settings: map[string]any{"fail": "privileges"}})
	if _, err := p.CSRSign(t.Context(), request(t)); err == nil || !strings.Contains(err.Error(), `no_new_privs "\t1"`) {
		t.Errorf("got %v", err)
	}
}

func TestStderrIsBoundedAndEscaped(t *testing.T) {
	h := newHost(t, "noisy")
	h.opts.StartTimeout = time.Minute // it writes 10 MB before it starts
	sign(t, h.open(t, pluginhost.Entry{Name: "noisy"}))
	h.rec.await(t, "the record", func(log string, _ []pluginhost.Status) bool {
		return strings.Contains(log, `level=ERROR`) && strings.Contains(log, `bell`)
	})
	h.rec.mu.Lock()
	defer h.rec.mu.Unlock()
	if text := h.rec.text.String(); len(text) > 1<<20 || strings.Contains(text, "\a") {
		t.Errorf("the log has %d bytes", len(text))
	}
}

func TestRepeatedCrashesOpenCircuit(t *testing.T) {
	h := newHost(t, "good")
	p := h.open(t, pluginhost.Entry{Name: "good", Settings: map[string]any{"fail": "die"}})
	for generation := 1; generation <= 5; generation++ {
		h.rec.awaitState(t, pluginhost.Ready, generation)
		_, _ = p.CSRSign(t.Context(), request(t))
	}
	h.rec.awaitState(t, pluginhost.CircuitOpen, 5)
	_, err := p.CSRSign(t.Context(), request(t))
	if !errors.Is(err, ca.ErrUnavailable) || ca.RetryAfter(err) < 5*time.Second { // of 22.5 at least, when it opens
		t.Errorf("got %v, retry after %s", err, ca.RetryAfter(err))
	}
}

func TestStoppedProviderIsReplaced(t *testing.T) {
	h := newHost(t, "good")
	h.opts.HealthInterval = 500 * time.Millisecond
	p := h.open(t, pluginhost.Entry{Name: "good"})
	must(t, syscall.Kill(p.Status().PID, syscall.SIGSTOP))
	h.rec.awaitState(t, pluginhost.Ready, 2)
	req := request(t)
	polling.Until(t, patience, "a successor signs, which on a busy machine may be late, too", func() bool {
		_, err := p.CSRSign(t.Context(), req)
		return err == nil
	})
}

func TestChildProcessesEndWithProvider(t *testing.T) {
	h := newHost(t, "forks")
	p := h.open(t, pluginhost.Entry{Name: "forks"})
	var child int
	h.rec.await(t, "the child's pid", func(log string, _ []pluginhost.Status) bool {
		_, rest, ok := strings.Cut(log, `line="child `)
		digits, _, whole := strings.Cut(rest, `"`)
		child, _ = strconv.Atoi(digits)
		return ok && whole && child > 0
	})
	must(t, syscall.Kill(p.Status().PID, syscall.SIGKILL))
	h.rec.awaitState(t, pluginhost.Backoff, 1)
	awaitGone(t, child)
}

func awaitGone(t *testing.T, pid int) {
	t.Helper()
	polling.Until(t, patience, fmt.Sprintf("process %d has ended", pid), func() bool { return !running(pid) })
}

func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}

func TestThousandsOfConcurrentCallsEnd(t *testing.T) {
	h := newHost(t, "good")
	p := h.open(t, pluginhost.Entry{Name: "good"})
	var all sync.WaitGroup
	failed := make(chan error, 8192)
	req := request(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for range 8192 {
		all.Go(func() {
			if _, err := p.Roots(ctx); err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		t.Fatal(err)
	}
	if _, err := p.CSRSign(ctx, req); err != nil {
		t.Error(err)
	}
}

func TestInProcessProviderHasSameInterface(t *testing.T) {
	p, err := pluginhost.InProcess(t.Context(), pluginhost.Options{}, pluginhost.Entry{Name: "good"}, provider.Define("good", "1", open).Provider)
	must(t, err)
	sign(t, p)
	if s := p.Status(); s.Authentication != pluginhost.InHost || s.State != pluginhost.Ready {
		t.Errorf("status %+v", s)
	}
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if _, err := p.CSRSign(t.Context(), request(t)); !errors.Is(err, ca.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

// awaiting is a provider whose CA is away until it is closed.
type awaiting struct {
	wire.Provider
	back chan struct{}
}

func (a awaiting) Ready(ctx context.Context) error {
	select {
	case <-a.back:
		return a.Provider.Ready(ctx)
	default:
		return ca.Errorf(ca.Unavailable, "the CA is away")
	}
}

func TestOpenDoesNotWaitForCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		p, err := pluginhost.InProcess(t.Context(), pluginhost.Options{Log: slog.New(slog.DiscardHandler)}, pluginhost.Entry{Name: "good"}, func() wire.Provider {
			return awaiting{provider.Define("good", "1", open).Provider(), back}
		})
		must(t, err)
		defer p.Close()
		synctest.Wait()
		if s := p.Status(); s.State != pluginhost.Configuring || !strings.Contains(s.LastError, "the CA is away") {
			t.Errorf("status %+v", s)
		}
		close(back)
		sign(t, p) // waits until it is ready
		if s := p.Status(); s.State != pluginhost.Ready {
			t.Errorf("status %+v", s)
		}
	})
}

// asHost names the folder of a child of the test that is a host.
const asHost = "HOST_TEST_FOLDER"

// beHost opens a provider, prints its pid, and stays.
func beHost() {
	folder := os.Getenv(asHost)
	p, err := pluginhost.Open(context.Background(), pluginhost.Options{
		Dirs: []string{filepath.Join(folder, "bin")}, RuntimeDir: filepath.Join(folder, "run"), Dev: true,
	}, pluginhost.Entry{Name: "good"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Status().PID)
	hang()
}

// An agent that is not root runs root's binary by its descriptor; its own, which it
// could be made to write, from a sealed copy.
func TestUserRunsRootBinaryDirectlyAndOwnFromCopy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		owner int
		want  string
	}{"root's": {0, "countersign-provider-good"}, "the user's own": {nobody, "memfd:"}} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			path := filepath.Join(h.dir, "countersign-provider-good")
			self, err := os.Executable()
			must(t, err)
			copyFile(t, self, path)
			must(t, errors.Join(os.Chmod(filepath.Dir(h.dir), 0o755), os.Chown(h.runtime, nobody, nobody), os.Chown(path, c.owner, c.owner)))
			cmd := exec.Command(path)
			cmd.Env = append(os.Environ(), asHost+"="+filepath.Dir(h.dir))
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			said, err := bufio.NewReader(out).ReadString('\n')
			pid, notPID := strconv.Atoi(strings.TrimSpace(said))
			program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			must(t, cmd.Process.Kill())
			_ = cmd.Wait()
			if err != nil || notPID != nil || !strings.Contains(program, c.want) {
				t.Errorf("host printed %q; its provider runs %q, want %q", said, program, c.want)
			}
			awaitGone(t, pid)
		})
	}
}

const nobody = 65534

func TestKilledHostLeavesNoProcessOrFolder(t *testing.T) {
	h := newHost(t, "good")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asHost+"="+filepath.Dir(h.dir))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatalf("the host printed no pid: %v", err)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	awaitGone(t, pid)
}
