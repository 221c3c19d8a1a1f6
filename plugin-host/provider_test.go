package pluginhost_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

const patience = 20 * time.Second

// TestMain runs the tests or, started as a provider, the provider that its own
// file name asks for.
func TestMain(m *testing.M) {
	if os.Getenv(wire.MagicCookieKey) != "" {
		name := strings.TrimPrefix(filepath.Base(os.Args[0]), "countersign-provider-")
		providers[name]()
		os.Exit(0)
	}
	if os.Getenv(asHost) != "" {
		beHost()
		return
	}
	goleak.VerifyTestMain(m)
}

type settings struct {
	Fail string `json:"fail,omitempty"`
}

// authority signs, and does on request what a provider should not.
type authority struct {
	*catest.CA
	settings
}

func open(_ context.Context, s settings) (*authority, error) {
	switch s.Fail {
	case "settings":
		return nil, provider.Errorf(provider.Invalid, "fail is %q: leave it out", s.Fail)
	case "away":
		return nil, provider.Errorf(provider.Unavailable, "the CA is away")
	}
	return &authority{catest.NewCA(catest.Options{}), s}, nil
}

func (a *authority) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	switch {
	case a.Fail == "panic":
		panic("on purpose")
	case a.Fail == "die":
		os.Exit(7)
	case a.Fail == "hang":
		<-ctx.Done()
		return ca.Certificate{}, ctx.Err()
	case a.Fail == "pid":
		return ca.Certificate{}, provider.Errorf(provider.Denied, "pid %d", os.Getpid())
	case strings.HasPrefix(a.Fail, "env "):
		return ca.Certificate{}, provider.Errorf(provider.Denied, "%q", os.Environ())
	}
	return a.CA.CSRSign(ctx, req)
}

func (a *authority) ExchangeToken(_ context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	return ca.ExchangedToken{AccessToken: "for-" + req.SubjectToken}, nil
}

// providers are the programs that this test's binary is, by the provider's name.
var providers = map[string]func(){
	"good": func() { provider.Main("good", "1", open) },
	"stock": func() {
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig:  plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: wire.MagicCookieKey, MagicCookieValue: wire.MagicCookieValue},
			VersionedPlugins: map[int]plugin.PluginSet{1: {wire.PluginName: stock{}}},
			GRPCServer:       plugin.DefaultGRPCServer,
		})
	},
	"exits":   func() { fmt.Fprintln(os.Stderr, "no licence found"); os.Exit(3) },
	"silent":  func() { select {} },
	"chatty":  func() { fmt.Println("hello"); provider.Main("chatty", "1", open) },
	"forged":  func() { fmt.Println("1|1|unix|/tmp/x|grpc|" + strings.Repeat("A", 60)); select {} },
	"outside": func() { fmt.Println("1|1|unix|/tmp/x|grpc"); select {} },
	"version": func() { fmt.Println("1|9|unix|fd:4|grpc"); select {} },
	"other":   func() { provider.Main("another", "1", open) },
	"noisy": func() {
		fmt.Fprintln(os.Stderr, `{"@level":1}`)
		fmt.Fprintln(os.Stderr, `{"@level":"error","@message":"bell \u0007","n":1}`)
		for range 5000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("x", 20_000))
		}
		provider.Main("noisy", "1", open)
	},
	"pinned": servePinned,
	"forks": func() {
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err == nil {
			fmt.Fprintf(os.Stderr, "child %d\n", child.Process.Pid)
		}
		provider.Main("forks", "1", open)
	},
}

// servePinned is a provider as another language would have it: no channel, mutual
// TLS with the keys that come over the lifeline.
func servePinned() {
	data, err := wire.ReadStartData(os.NewFile(wire.LifelineFD, "lifeline"))
	if err != nil {
		panic(err)
	}
	pair, err := tls.X509KeyPair([]byte(data.ServerCert), []byte(data.ServerKey))
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(data.ClientCert))
	path := filepath.Join(os.Getenv(wire.EnvSocketDir), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	})))
	wire.Register(server, wire.V1(), provider.Define("pinned", "1", open).Provider())
	fmt.Printf("1|1|unix|%s|grpc\n", path)
	panic(server.Serve(listener))
}

type stock struct{ plugin.NetRPCUnsupportedPlugin }

func (stock) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	wire.Register(server, wire.V1(), provider.Define("stock", "1", open).Provider())
	return nil
}

func (stock) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("no host")
}

// install makes this test's binary a provider of that name.
func install(t *testing.T, dir, name string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "countersign-provider-"+name)
	if err := os.Link(self, to); err == nil {
		return
	}
	copyFile(t, self, to)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
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

func newHost(t *testing.T, names ...string) *host {
	t.Helper()
	base, err := os.MkdirTemp("", "host")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{dir: filepath.Join(base, "bin"), runtime: filepath.Join(base, "run"), rec: newRecorder()}
	for _, dir := range []string{h.dir, h.runtime} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	id, err := pki.NewIdentity("spiffe://example.org/web", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(key, id)
	if err != nil {
		t.Fatal(err)
	}
	return ca.SignRequest{ID: uuid.NewString(), CSR: csr, SubjectID: "spiffe://example.org/web", TTL: time.Hour}
}

func sign(t *testing.T, p ca.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cert, err := p.CSRSign(ctx, request(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pki.ParseCertificates(cert.Chain); err != nil {
		t.Fatal(err)
	}
}

func TestAProviderOfOursAndAStockOneAreUsedEachByItsOwnWay(t *testing.T) {
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
		})
	}
}

func TestAKilledProviderIsSeenAtOnceAndComesBackConfigured(t *testing.T) {
	h := newHost(t, "good")
	p := h.open(t, pluginhost.Entry{Name: "good"})
	for generation := 1; generation <= 2; generation++ {
		if err := syscall.Kill(p.Status().PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		h.rec.awaitState(t, pluginhost.Backoff, generation)
		sign(t, p) // waits for the next life
	}
	if s := p.Status(); s.Generation != 3 || s.Restarts() != 2 {
		t.Errorf("generation %d", s.Generation)
	}
}

func TestAWatchOfRootsGoesOnInTheNextProcess(t *testing.T) {
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
		if err := syscall.Kill(p.Status().PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
}

func TestWhatAProviderDoesWrongDoesNotReachTheHost(t *testing.T) {
	for fail, want := range map[string]*ca.Error{"panic": ca.ErrInternal, "die": ca.ErrUnavailable, "hang": ca.ErrDeadline} {
		t.Run(fail, func(t *testing.T) {
			h := newHost(t, "good")
			p := h.open(t, pluginhost.Entry{Name: "good", Settings: map[string]any{"fail": fail}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
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

func TestABadStartIsOneSentence(t *testing.T) {
	for name, want := range map[string]string{
		"exits":   "exit status 3",
		"silent":  "did not get through its start within",
		"chatty":  "on standard output",
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
			h.opts.StartTimeout = 2 * time.Second
			p, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: name})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if p != nil && p.Status().State != pluginhost.Stopped {
				t.Errorf("it is %s", p.Status().State)
			}
		})
	}
}

func TestWrongSettingsStopTheStartAndACAThatIsAwayDoesNot(t *testing.T) {
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

func TestOnlyThePinnedBinaryRuns(t *testing.T) {
	h := newHost(t, "good")
	h.opts.Dev = false
	found, err := pluginhost.Finder{Dirs: h.opts.Dirs}.Find("good")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := found.SHA256()
	if err != nil {
		t.Fatal(err)
	}
	for pin, want := range map[string]string{
		"": "no pin", "xyz": "64 hex digits", strings.Repeat("0", 64): "its SHA-256 is " + sum,
	} {
		if _, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: "good", SHA256: pin}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pin %q: got %v, want %q", pin, err, want)
		}
	}
	p := h.open(t, pluginhost.Entry{Name: "good", SHA256: sum})
	// What is at the path now is not what runs after a crash: the verified bytes are.
	if err := os.Remove(found.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(found.Path, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.Status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.rec.awaitState(t, pluginhost.Ready, 2)
	sign(t, p)
}

func TestAProgramForAnotherMachineIsSaidToBeOne(t *testing.T) {
	h := newHost(t, "good")
	path := filepath.Join(h.dir, "countersign-provider-good")
	self, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	self[18], self[19] = 0xb7, 0 // e_machine: aarch64
	if runtime.GOARCH == "arm64" {
		self[18] = 0x3e // x86-64
	}
	for name, content := range map[string][]byte{"it is built for": self, "it is no program": []byte("text")} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: "good"}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

func TestTheEnvironmentIsScrubbed(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "leak")
	t.Setenv("COUNTERSIGN_TOKEN", "leak")
	h := newHost(t, "good")
	p := h.open(t, pluginhost.Entry{Name: "good", Settings: map[string]any{"fail": "env "}, Env: map[string]string{"REGION": "here"}})
	_, err := p.CSRSign(t.Context(), request(t))
	if err == nil || strings.Contains(err.Error(), "leak") || strings.Contains(err.Error(), "COUNTERSIGN") {
		t.Errorf("got %v", err)
	}
	for key, want := range map[string]string{"": "no name", "PLUGIN_X": "are the host's", "A=B": "no name"} {
		_, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: "good", Env: map[string]string{key: "x"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("env %q: got %v", key, err)
		}
	}
}

func TestStandardErrorIsBoundedAndHarmless(t *testing.T) {
	h := newHost(t, "noisy")
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

func TestAProviderThatCrashesAgainAndAgainOpensTheCircuit(t *testing.T) {
	h := newHost(t, "good")
	p := h.open(t, pluginhost.Entry{Name: "good", Settings: map[string]any{"fail": "die"}})
	for generation := 1; generation <= 5; generation++ {
		h.rec.awaitState(t, pluginhost.Ready, generation)
		_, _ = p.CSRSign(t.Context(), request(t))
	}
	h.rec.awaitState(t, pluginhost.CircuitOpen, 5)
	_, err := p.CSRSign(t.Context(), request(t))
	if !errors.Is(err, ca.ErrUnavailable) || ca.RetryAfter(err) < 20*time.Second {
		t.Errorf("got %v, retry after %s", err, ca.RetryAfter(err))
	}
}

func TestAStoppedProviderIsReplaced(t *testing.T) {
	h := newHost(t, "good")
	h.opts.HealthInterval = 100 * time.Millisecond
	p := h.open(t, pluginhost.Entry{Name: "good"})
	if err := syscall.Kill(p.Status().PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	h.rec.awaitState(t, pluginhost.Ready, 2)
	sign(t, p)
}

func TestWhatAProviderStartedGoesWithIt(t *testing.T) {
	h := newHost(t, "forks")
	p := h.open(t, pluginhost.Entry{Name: "forks"})
	var child int
	h.rec.await(t, "the child's pid", func(log string, _ []pluginhost.Status) bool {
		_, rest, ok := strings.Cut(log, `line="child `)
		digits, _, whole := strings.Cut(rest, `"`)
		child, _ = strconv.Atoi(digits)
		return ok && whole && child > 0
	})
	if err := syscall.Kill(p.Status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.rec.awaitState(t, pluginhost.Backoff, 1)
	awaitGone(t, child)
}

func awaitGone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for running(pid) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
		runtime.Gosched()
	}
}

func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}

func TestThousandsOfCallsAtOnceAllEnd(t *testing.T) {
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

func TestInOneProcessTheSameInterfaceRunsAProvider(t *testing.T) {
	p, err := pluginhost.InProcess(t.Context(), pluginhost.Options{}, pluginhost.Entry{Name: "good"}, provider.Define("good", "1", open).Provider)
	if err != nil {
		t.Fatal(err)
	}
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

// asHost names the folder of a child of the test that is a host.
const asHost = "HOST_TEST_FOLDER"

// beHost opens a provider, says its pid, and stays.
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
	select {}
}

// An agent that is not root runs root's binary by its descriptor; its own, which it
// could be made to write, from a sealed copy.
func TestAnOrdinaryUserRunsRootsBinaryItselfAndHisOwnFromACopy(t *testing.T) {
	for name, c := range map[string]struct {
		owner int
		want  string
	}{"root's": {0, "countersign-provider-good"}, "his own": {nobody, "memfd:"}} {
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
				t.Errorf("host said %q; its provider runs %q, want %q", said, program, c.want)
			}
			awaitGone(t, pid)
		})
	}
}

const nobody = 65534

func TestAKilledHostLeavesNoProcessAndNoFolder(t *testing.T) {
	h := newHost(t, "good")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asHost+"="+filepath.Dir(h.dir))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatalf("the host said no pid: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	awaitGone(t, pid)
}
