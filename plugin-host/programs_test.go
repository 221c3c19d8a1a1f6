package pluginhost_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// TestMain runs the tests or, started as a provider, the provider that its own
// file name asks for.
func TestMain(m *testing.M) {
	if os.Getenv(wire.MagicCookieKey) != "" {
		name := strings.TrimPrefix(filepath.Base(os.Args[0]), "countersign-provider-")
		providers[name]()
		os.Exit(0)
	}
	if socket := os.Getenv(asStranger); socket != "" {
		beStranger(socket)
		return
	}
	if os.Getenv(asHost) != "" {
		beHost()
		return
	}
	findInterpreters()
	_ = flag.Set("test.parallel", "6") // they mostly wait
	goleak.VerifyTestMain(m)
}

// asStranger has this binary connect to the socket that it names.
const asStranger = "BE_STRANGER"

// beStranger prints what a socket sends to it.
func beStranger(socket string) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Print(err)
		return
	}
	if n, err := conn.Read(make([]byte, 1)); n == 0 && err != nil {
		fmt.Print("closed")
	}
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
	slog.Warn("opened", "fail", s.Fail, slog.Group("names", "of", []string{"a", "b"}))
	switch s.Fail {
	case "settings":
		return nil, provider.Errorf(provider.Invalid, "fail is %q: leave it out", s.Fail)
	case "away":
		return nil, provider.Errorf(provider.Unavailable, "the CA is away")
	}
	return &authority{catest.NewCA(catest.Options{}), s}, nil
}

// Close is where a provider ends what it has at its CA.
func (a *authority) Close() error {
	if path, ok := strings.CutPrefix(a.Fail, "close "); ok {
		return os.WriteFile(path, []byte("closed"), 0o600)
	}
	return nil
}

func (a *authority) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if what, ok := misdeeds[a.Fail]; ok {
		return ca.Certificate{}, provider.Errorf(provider.Denied, "%s", what())
	}
	switch {
	case a.Fail == "hang":
		<-ctx.Done()
		return ca.Certificate{}, ctx.Err()
	case a.Fail == "huge":
		return ca.Certificate{Chain: make([]byte, 8<<20)}, nil
	case strings.HasPrefix(a.Fail, "fill "):
		return ca.Certificate{}, provider.Errorf(provider.Denied, "%s", fill(strings.TrimPrefix(a.Fail, "fill ")))
	}
	return a.CA.CSRSign(ctx, req)
}

// misdeeds are what a provider does on request instead of signing, and then reports
// the result.
var misdeeds = map[string]func() string{
	"panic":       func() string { panic("on purpose") },
	"die":         func() string { os.Exit(7); return "" },
	"pid":         func() string { return fmt.Sprintf("pid %d", os.Getpid()) },
	"environment": func() string { return fmt.Sprintf("%q", os.Environ()) },
	"privileges": func() string {
		status, err := os.ReadFile("/proc/self/status")
		_, after, _ := strings.Cut(string(status), "NoNewPrivs:")
		return fmt.Sprintf("no_new_privs %.2q %v", after, err)
	},
	"user": func() string {
		groups, err := os.Getgroups()
		return fmt.Sprintf("uid %d, gid %d, groups %v %v, home %s", os.Getuid(), os.Getgid(), groups, err, os.Getenv("HOME"))
	},
	"descriptors": func() string {
		for n := range 5000 {
			if _, err := os.Open("/dev/null"); err != nil {
				return fmt.Sprintf("opened %d: %v", n, err)
			}
		}
		return "opened all"
	},
	"processes": func() string {
		for n := range 500 {
			if err := exec.Command("sleep", "1000").Start(); err != nil {
				return fmt.Sprintf("started %d: %v", n, err)
			}
		}
		return "started all"
	},
	"memory": func() string {
		var eaten [][]byte
		for len(eaten) < 1024 {
			piece := make([]byte, 16<<20)
			for i := 0; i < len(piece); i += 4096 {
				piece[i] = 1
			}
			eaten = append(eaten, piece)
		}
		return fmt.Sprintf("ate %d pieces", len(eaten))
	},
}

// fill writes until there is no room.
func fill(path string) string {
	file, err := os.Create(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	for n := 0; ; n++ {
		if _, err := file.Write(make([]byte, 1<<20)); err != nil {
			return fmt.Sprintf("wrote %d MiB: %v", n, err)
		}
	}
}

func (a *authority) ExchangeToken(_ context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	return ca.ExchangedToken{AccessToken: "for-" + req.SubjectToken}, nil
}

// providers are the programs that this test's binary is, by the provider's name.
var providers = map[string]func(){
	"good":     func() { provider.Main("good", "1", open) },
	"advising": func() { provider.Main("advising", "1", openAdvising) },
	"stock": func() {
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig:  plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: wire.MagicCookieKey, MagicCookieValue: wire.MagicCookieValue},
			VersionedPlugins: map[int]plugin.PluginSet{1: {wire.PluginName: stock{}}},
			GRPCServer:       plugin.DefaultGRPCServer,
		})
	},
	"exits":   func() { fmt.Fprintln(os.Stderr, "no licence found"); os.Exit(3) },
	"silent":  hang,
	"chatty":  func() { fmt.Println("hello"); provider.Main("chatty", "1", open) },
	"forged":  func() { fmt.Println("1|1|unix|/tmp/x|grpc|" + strings.Repeat("A", 60)); hang() },
	"outside": func() { fmt.Println("1|1|unix|/tmp/x|grpc"); hang() },
	"version": func() { fmt.Println("1|9|unix|fd:4|grpc"); hang() },
	"other":   func() { provider.Main("another", "1", open) },
	"noisy": func() {
		fmt.Fprintln(os.Stderr, `{"@level":1}`)
		fmt.Fprintln(os.Stderr, `{"@level":"error","@message":"bell \u0007","n":1}`)
		for range 500 {
			fmt.Fprintln(os.Stderr, strings.Repeat("x", 20_000))
		}
		provider.Main("noisy", "1", open)
	},
	"two":    func() { provider.Define("two", "1", open).WithProtocols(conformance.V2()).Serve() },
	"both":   func() { provider.Define("both", "1", open).WithProtocols(wire.V1(), conformance.V2()).Serve() },
	"pinned": servePinned,
	"forks": func() {
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err == nil {
			fmt.Fprintf(os.Stderr, "child %d\n", child.Process.Pid)
		}
		provider.Main("forks", "1", open)
	},
}

// hang blocks until the process is killed. With select {} the runtime could report a deadlock.
func hang() { time.Sleep(24 * time.Hour) }

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
