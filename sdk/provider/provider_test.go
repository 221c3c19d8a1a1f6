package provider_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// speaks names the versions that this test's binary speaks as a provider.
const speaks = "PROVIDER_TEST_SPEAKS"

// promptExit: the race detector holds the end of a process for a second otherwise.
const promptExit = "GORACE=atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	if os.Getenv(wire.MagicCookieKey) != "" || os.Getenv(speaks) != "" {
		definition := provider.Define("test", "1", open)
		switch os.Getenv(speaks) {
		case "1,2":
			definition = definition.WithProtocols(wire.V1(), conformance.V2())
		case "2":
			definition = definition.WithProtocols(conformance.V2())
		}
		definition.Serve()
		return
	}
	goleak.VerifyTestMain(m,
		// go-plugin's broker and stdio client end some time after Kill.
		goleak.IgnoreAnyFunction("github.com/hashicorp/go-plugin.(*GRPCBroker).Run"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/go-plugin.(*gRPCBrokerClientImpl).StartStream"))
}

type settings struct {
	Greeting string `json:"greeting,omitempty" jsonschema:"the text that it prints"`
	Panic    bool   `json:"panic,omitempty"`
	Print    int    `json:"print,omitempty" jsonschema:"how many bytes it prints on each output when opened"`
	Await    string `json:"await,omitempty" jsonschema:"what CSRSign waits for: its context (ctx) or SIGTERM (term)"`
	TLS      struct {
		ServerName string `json:"server_name,omitempty"`
	} `json:"tls,omitzero"`
}

func (s settings) Validate() error {
	if s.Greeting == "bad" {
		return errors.New(`greeting is "bad": be kind`)
	}
	return nil
}

// authority has every ability, prints where it must not, and panics on demand.
type authority struct {
	*catest.CA
	settings
}

func open(_ context.Context, s settings) (*authority, error) {
	fmt.Println("1|1|unix|/tmp/forged|grpc") // an author's habit, on standard output
	fmt.Fprint(os.Stdout, strings.Repeat("x", s.Print))
	fmt.Fprint(os.Stderr, strings.Repeat("x", s.Print))
	slog.Warn("opened", "greeting", s.Greeting)
	return &authority{catest.NewCA(catest.Options{}), s}, nil
}

// Close records the call.
func (a *authority) Close() error {
	slog.Info("closed")
	return nil
}

func (a *authority) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if a.Panic {
		panic("on purpose, with " + req.Token.Reveal())
	}
	if a.Await != "" {
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		slog.Info("waiting", "for", a.Await)
		select {
		case <-ctx.Done():
			return ca.Certificate{}, ctx.Err()
		case <-terminated:
		}
	}
	return a.CA.CSRSign(ctx, req)
}

func (a *authority) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	if req.Audience == "descriptors" { // of a program that the author starts
		out, err := exec.CommandContext(ctx, "ls", "-l", "/proc/self/fd").Output()
		return ca.ExchangedToken{AccessToken: ca.Token(fmt.Sprint(strings.Count(string(out), "socket:")))}, err
	}
	return ca.ExchangedToken{AccessToken: "for " + req.SubjectToken, Expiry: time.Unix(1e9, 0)}, nil
}

// stockHost is what a go-plugin host has for a version of the protocol.
type stockHost struct {
	plugin.NetRPCUnsupportedPlugin
	protocol wire.Protocol
}

func (stockHost) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error { return errors.New("no provider") }

func (h stockHost) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return wire.NewRemote(conn, wire.RemoteOptions{Protocol: h.protocol}), nil
}

// start has a stock go-plugin host start this test's binary as a provider.
func start(t *testing.T, says string, autoMTLS bool, protocols ...wire.Protocol) (*plugin.Client, error) {
	t.Helper()
	proctest.NeedsProcess(t)
	dir, err := os.MkdirTemp("", "provider")
	must(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), speaks+"="+says, promptExit)
	sets := map[int]plugin.PluginSet{}
	for _, p := range protocols {
		sets[p.Version] = plugin.PluginSet{wire.PluginName: stockHost{protocol: p}}
	}
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: wire.MagicCookieKey, MagicCookieValue: wire.MagicCookieValue},
		VersionedPlugins: sets, Cmd: cmd, AutoMTLS: autoMTLS, AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger: hclog.NewNullLogger(), UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: dir},
	})
	t.Cleanup(func() { client.Kill(); _ = os.RemoveAll(dir) })
	_, err = client.Start()
	return client, err
}

func remote(t *testing.T, client *plugin.Client) *wire.Remote {
	t.Helper()
	protocol, err := client.Client()
	must(t, err)
	raw, err := protocol.Dispense(wire.PluginName)
	must(t, err)
	return raw.(*wire.Remote)
}

func request(t *testing.T) ca.SignRequest {
	t.Helper()
	key, err := pki.GenerateKey("")
	must(t, err)
	id, err := pki.NewIdentity("spiffe://example.org/web", []string{"web.example"}, []string{"10.0.0.1"})
	must(t, err)
	csr, err := pki.CreateCSR(key, id)
	must(t, err)
	return ca.SignRequest{ID: uuid.NewString(), CSR: csr, SubjectID: "spiffe://example.org/web", DNSNames: id.DNSNames, IPAddresses: id.IPAddresses, TTL: time.Hour, Token: "eyJ.secret"}
}

func TestStockHostUsesEveryAbility(t *testing.T) {
	for _, autoMTLS := range []bool{false, true} {
		t.Run(fmt.Sprintf("AutoMTLS %v", autoMTLS), func(t *testing.T) {
			client, err := start(t, "1", autoMTLS, wire.V1())
			must(t, err)
			r, ctx := remote(t, client), t.Context()
			if _, err := r.CSRSign(ctx, request(t)); !errors.Is(err, ca.ErrNotConfigured) {
				t.Errorf("before Configure: %v", err)
			}
			must(t, r.Configure(ctx, map[string]any{"greeting": "hello"}))
			metadata, err := r.Metadata(ctx)
			if err != nil || len(metadata.Abilities) != 4 || !strings.Contains(metadata.SettingsSchema, "the text that it prints") {
				t.Errorf("metadata %+v, %v", metadata, err)
			}
			cert, err := r.CSRSign(ctx, request(t))
			if err != nil || len(cert.Chain) == 0 {
				t.Errorf("sign: %v", err)
			}
			if roots, err := r.Roots(ctx); err != nil || len(roots) == 0 {
				t.Errorf("roots: %v", err)
			}
			enough := errors.New("enough")
			if err := r.WatchRoots(ctx, func([]byte) error { return enough }); !errors.Is(err, enough) {
				t.Errorf("watch: %v", err)
			}
			token, err := r.ExchangeToken(ctx, ca.TokenRequest{SubjectToken: "me"})
			if err != nil || token.AccessToken.Reveal() != "for me" || !token.Expiry.Equal(time.Unix(1e9, 0)) {
				t.Errorf("exchange: %v %v", token, err)
			}
		})
	}
}

func TestHighestCommonVersionIsSpoken(t *testing.T) {
	for _, c := range []struct {
		provider string
		host     []wire.Protocol
		want     int // 0: none
	}{
		{"1", []wire.Protocol{wire.V1()}, 1},
		{"1", []wire.Protocol{wire.V1(), conformance.V2()}, 1},
		{"1,2", []wire.Protocol{wire.V1()}, 1},
		{"1,2", []wire.Protocol{wire.V1(), conformance.V2()}, 2},
		{"2", []wire.Protocol{wire.V1(), conformance.V2()}, 2},
		{"2", []wire.Protocol{wire.V1()}, 0},
	} {
		client, err := start(t, c.provider, true, c.host...)
		if c.want == 0 {
			if err == nil {
				t.Errorf("provider %s, host of %d versions: nothing is common, and it started", c.provider, len(c.host))
			}
			continue
		}
		must(t, err)
		if got := client.NegotiatedVersion(); got != c.want {
			t.Errorf("provider %s, host of %d versions: %d, want %d", c.provider, len(c.host), got, c.want)
		}
		r := remote(t, client)
		must(t, r.Configure(t.Context(), nil))
		if _, err := r.CSRSign(t.Context(), request(t)); err != nil {
			t.Errorf("sign in version %d: %v", c.want, err)
		}
	}
}

func TestPanicIsAnErrorWithoutTokenAndProcessLives(t *testing.T) {
	client, err := start(t, "1", false, wire.V1())
	must(t, err)
	r := remote(t, client)
	must(t, r.Configure(t.Context(), map[string]any{"panic": true}))
	for range 2 {
		if _, err := r.CSRSign(t.Context(), request(t)); !errors.Is(err, ca.ErrInternal) || strings.Contains(err.Error(), "eyJ") {
			t.Errorf("got %v", err)
		}
	}
}

func TestProviderStartedByHandExplainsItself(t *testing.T) {
	proctest.NeedsProcess(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), speaks+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "a host such as `countersign agent` starts it") {
		t.Errorf("got %v: %s", err, out)
	}
}

func TestSettingsAreStrictAndErrorsNameSetting(t *testing.T) {
	p := provider.Define("test", "1", open).Provider()
	for name, c := range map[string]struct {
		settings map[string]any
		want     string
	}{
		"good":       {map[string]any{"greeting": "hello"}, ""},
		"none":       {nil, ""},
		"mistyped":   {map[string]any{"greting": "x"}, "did you mean greeting?"},
		"unknown":    {map[string]any{"zzz": "x"}, "there are: greeting, panic"},
		"other case": {map[string]any{"Greeting": "x"}, "did you mean greeting?"},
		"nested":     {map[string]any{"tls": map[string]any{"servername": "x"}}, "there is no setting tls.servername; did you mean tls.server_name?"},
		"wrong type": {map[string]any{"greeting": 1}, "the setting greeting is a number"},
		"its own":    {map[string]any{"greeting": "bad"}, "be kind"},
	} {
		found, err := p.Validate(t.Context(), c.settings)
		if err != nil || (c.want == "") != (len(found) == 0) || c.want != "" && !strings.Contains(found[0].Summary, c.want) {
			t.Errorf("%s: %v, %v", name, found, err)
		}
		if err := p.Configure(t.Context(), c.settings); (err == nil) != (c.want == "") || err != nil && !errors.Is(err, ca.ErrInvalid) {
			t.Errorf("%s: configure: %v", name, err)
		}
	}
}

// closer is a client that records when it is closed.
type closer struct {
	ca.Client
	closed chan struct{}
}

func (c *closer) Close() error { close(c.closed); return nil }

func TestNewSettingsReplaceClientAfterItsCalls(t *testing.T) {
	slow := catest.NewCA(catest.Options{})
	slow.Next(1, catest.Fault{Hang: true})
	made := []*closer{{slow, make(chan struct{})}, {catest.NewCA(catest.Options{}), make(chan struct{})}}
	next := 0
	p := provider.Define("test", "1", func(context.Context, settings) (*closer, error) {
		next++
		return made[next-1], nil
	}).Provider()
	must(t, p.Configure(t.Context(), nil))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { _, err := p.CSRSign(ctx, request(t)); over <- err }()
	for len(slow.Requests()) == 0 {
		runtime.Gosched()
	}
	must(t, p.Configure(t.Context(), nil))
	if _, err := p.CSRSign(t.Context(), request(t)); err != nil {
		t.Errorf("the new one: %v", err)
	}
	select {
	case <-made[0].closed:
		t.Error("the old one was closed under its call")
	default:
	}
	cancel()
	<-over
	<-made[0].closed
	if err := p.(io.Closer).Close(); err != nil {
		t.Error(err)
	}
	<-made[1].closed
	if _, err := p.Roots(t.Context()); !errors.Is(err, ca.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

func TestClosingAProviderClosesStopping(t *testing.T) {
	p := provider.Define("stops", "1", func(context.Context, struct{}) (ca.Client, error) { return nil, nil }).Provider()
	stopping := p.(interface{ Stopping() <-chan struct{} }).Stopping()
	select {
	case <-stopping:
		t.Error("closed before Close")
	default:
	}
	for range 2 {
		if err := p.(io.Closer).Close(); err != nil {
			t.Error(err)
		}
	}
	<-stopping
}
