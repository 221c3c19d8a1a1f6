package providertest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// TestMain runs the tests or, started as a provider, the one that its file's name
// asks for.
func TestMain(m *testing.M) {
	if name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), prefix); ok {
		run(name)
		return
	}
	_ = flag.Set("test.parallel", "4") // they mostly wait
	goleak.VerifyTestMain(m)
}

// run is the provider of that name: a good one, or one that breaks one rule.
func run(name string) {
	if os.Getenv(wire.MagicCookieKey) == "" && name == "proc-01" {
		os.Exit(0)
	}
	if program, ok := programs[name]; ok && os.Getenv(wire.MagicCookieKey) != "" {
		program(name)
		return
	}
	define(name).Serve()
}

type settings struct {
	Folder   string `json:"folder" jsonschema:"where it keeps things"`
	Password string `json:"password,omitempty" jsonschema:"what it logs in with" secret:"true"`
}

func (s settings) Validate() []provider.Diagnostic {
	if s.Folder == "wrong" {
		return []provider.Diagnostic{{Summary: `folder is "wrong"`, Pointer: "/folder"}}
	}
	return nil
}

// authority signs, and breaks the rule of its name.
type authority struct {
	*catest.CA
	settings
	rule string
	said *bool
	lock *os.File
}

func define(name string) *provider.Definition {
	said := false
	made := catest.NewCA(catest.Options{})
	return provider.Define(name, "1", func(_ context.Context, s settings) (*authority, error) {
		a := &authority{CA: made, settings: s, rule: name, said: &said}
		switch name {
		case "proc-19":
			keep()
		case "proc-21":
			slog.Info("logging in", "password", s.Password)
		}
		return a, nil
	})
}

// keep never closes what it opens.
func keep() {
	file, _ := os.Open(os.DevNull)
	forever.Lock()
	defer forever.Unlock()
	forever.files = append(forever.files, file)
}

// forever is what a leak holds.
var forever struct {
	sync.Mutex
	files []*os.File
}

func (a *authority) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if req.Token == "" {
		return ca.Certificate{}, provider.Errorf(provider.Unauthenticated, "there is no token")
	}
	if strings.Contains(req.SubjectID, "stranger") {
		if a.rule == "panics" {
			slog.Info("refusing", "password", a.Password, "token", req.Token.Reveal())
			panic("what is a stranger?")
		}
		return ca.Certificate{}, provider.Errorf(provider.Denied, "it is not for you")
	}
	if err := a.misbehave(req); err != nil {
		return ca.Certificate{}, err
	}
	return a.CA.CSRSign(ctx, req)
}

func (a *authority) misbehave(req ca.SignRequest) error {
	switch a.rule {
	case "proc-04":
		fmt.Println("hello")
	case "proc-10":
		return a.alone()
	case "proc-11":
		return a.tidy()
	case "proc-16":
		for range 8 {
			fmt.Fprintln(os.Stderr, strings.Repeat("x", 1000))
		}
	case "proc-17":
		forever.Lock()
		defer forever.Unlock()
		if !*a.said {
			*a.said = true
			fmt.Fprintln(os.Stderr, strings.Repeat("x", 9000))
		}
	case "proc-22":
		if forever.Lock(); !*a.said {
			*a.said = true
			for range 100 {
				fmt.Fprintln(os.Stderr, strings.Repeat("x", 1000))
			}
		}
		forever.Unlock()
	case "proc-18":
		keep()
	case "proc-20":
		slog.Info("signing", "authorization", "Bearer "+req.Token.Reveal())
	}
	return nil
}

// alone does not work beside another process.
func (a *authority) alone() error {
	forever.Lock()
	defer forever.Unlock()
	if a.lock == nil {
		file, err := os.OpenFile(filepath.Join(a.Folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		a.lock = file
	}
	if err := syscall.Flock(int(a.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return provider.Errorf(provider.Unavailable, "another one is at work")
	}
	return nil
}

// tidy does not work after a process that was killed at work.
func (a *authority) tidy() error {
	left, _ := filepath.Glob(filepath.Join(a.Folder, "working-*"))
	var dead []string
	for _, file := range left {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(file), "working-%d-", &pid); err == nil && syscall.Kill(pid, 0) != nil {
			dead = append(dead, file)
			_ = os.Remove(file)
		}
	}
	if len(dead) > 0 {
		return provider.Errorf(provider.Internal, "the one before left %s", dead)
	}
	file, err := os.CreateTemp(a.Folder, fmt.Sprintf("working-%d-", os.Getpid()))
	if err != nil {
		return err
	}
	time.Sleep(40 * time.Millisecond)
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// programs are providers that serve in another way than the sdk's.
var programs = map[string]func(name string){
	"stock": func(name string) {
		os.Unsetenv(wire.EnvChannelFD) // so that the sdk takes its host for another
		define(name).Serve()
	},
	"pinned": func(name string) { servePinned(name, tls.RequireAndVerifyClientCert) },
	"good": func(name string) {
		define(name).WithProtocols(wire.V1(), conformance.V2()).Serve()
	},

	"proc-02": func(string) { define("another").Serve() },
	"proc-04": func(name string) { onChannel{}.serve(name) },
	"proc-05": func(name string) { onChannel{boastful: true}.serve(name) },
	"proc-06": func(name string) {
		if os.Getenv(wire.EnvVersions) == "97" {
			fmt.Fprintln(os.Stderr, "thinking about it")
			time.Sleep(time.Hour)
		}
		define(name).Serve()
	},
	"proc-06-otherwise": func(name string) {
		if os.Getenv(wire.EnvVersions) == "97" {
			fmt.Fprintln(os.Stderr, "the host has no version 1")
			os.Exit(0)
		}
		define(name).Serve()
	},
	"proc-07": func(name string) {
		two := conformance.V2()
		two.Register = func(grpc.ServiceRegistrar, ca.Client) {}
		define(name).WithProtocols(wire.V1(), two).Serve()
	},
	"proc-08": func(name string) { servePinned(name, tls.RequestClientCert) },
	"proc-09": func(name string) {
		if _, err := net.Listen("tcp", "127.0.0.1:0"); err != nil {
			panic(err)
		}
		define(name).Serve()
	},
	"proc-13": func(name string) { onChannel{finishesFirst: true}.serve(name) },
	"proc-14": func(name string) { onChannel{deafToTERM: true}.serve(name) },
}

// onChannel serves the inherited connection without the sdk.
type onChannel struct {
	boastful, deafToTERM bool
	finishesFirst        bool // what is in flight, when it is to leave
}

func (o onChannel) serve(name string) {
	offered := strings.Split(os.Getenv(wire.EnvVersions), ",")
	version := "1"
	if o.boastful {
		version = offered[len(offered)-1]
	} else if !slices.Contains(offered, version) {
		fmt.Fprintln(os.Stderr, "the host has no version 1")
		os.Exit(1)
	}
	if o.deafToTERM {
		signal.Ignore(syscall.SIGTERM)
	}
	server := newServer(name)
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(wire.LifelineFD, "lifeline"))
		if o.finishesFirst {
			server.GracefulStop()
		}
		os.Exit(0)
	}()
	conn, err := net.FileConn(os.NewFile(wire.ChannelFD, "channel"))
	if err != nil {
		panic(err)
	}
	fmt.Printf("1|%s|unix|fd:4|grpc\n", version)
	_ = server.Serve(&one{conn: conn, closed: make(chan struct{})})
	hang() // until the lifeline ends
}

// hang blocks until the process ends. With select {} the runtime could report a deadlock.
func hang() { time.Sleep(24 * time.Hour) }

func newServer(name string, opts ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append(opts, wire.ServerOptions(nil)...)...)
	wire.Register(server, wire.V1(), define(name).Provider())
	serving := health.NewServer()
	serving.SetServingStatus(wire.HealthService, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, serving)
	return server
}

// one is a listener of one connection.
type one struct {
	conn   net.Conn
	done   bool
	closed chan struct{}
}

func (o *one) Accept() (net.Conn, error) {
	if o.done {
		<-o.closed
		return nil, net.ErrClosed
	}
	o.done = true
	return o.conn, nil
}

func (o *one) Close() error   { close(o.closed); return nil }
func (o *one) Addr() net.Addr { return o.conn.LocalAddr() }

// servePinned is a provider as another language would have it.
func servePinned(name string, auth tls.ClientAuthType) {
	if !strings.Contains(os.Getenv(wire.EnvVersions), "1") {
		fmt.Fprintln(os.Stderr, "the host has no version 1")
		os.Exit(1)
	}
	lifeline := os.NewFile(wire.LifelineFD, "lifeline")
	data, err := wire.ReadStartData(io.LimitReader(lifeline, 1<<16))
	if err != nil {
		panic(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, lifeline)
		os.Exit(0)
	}()
	pair, err := tls.X509KeyPair([]byte(data.ServerCert), []byte(data.ServerKey))
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bytes.TrimSpace([]byte(data.ClientCert)))
	path := filepath.Join(os.Getenv(wire.EnvSocketDir), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	fmt.Printf("1|1|unix|%s|grpc\n", path)
	panic(newServer(name, grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: auth, ClientCAs: pool,
	}))).Serve(listener))
}
