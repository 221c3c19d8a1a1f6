package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// hostile are the ways to be a bad provider from the start on; the variable HOSTILE names
// one.
var hostile = map[string]func(){
	"exits":              func() { os.Exit(3) },
	"silent":             func() { time.Sleep(time.Hour) },
	"prints forever":     func() { flood(os.Stdout) },
	"writes no line":     func() { _, _ = os.Stdout.WriteString(strings.Repeat("x", 100_000)); time.Sleep(time.Hour) },
	"floods the log":     func() { go flood(os.Stderr); serve(good()) },
	"floods its output":  func() { go floodAfter(os.Stdout); serve(good()) },
	"floods of PING":     func() { serveBeside(good(), func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }) },
	"floods of SETTINGS": func() { serveBeside(good(), func(f *http2.Framer) error { return f.WriteSettings() }) },
	"says two lines":     func() { shakeHands("1|1|unix|fd:4|grpc\nand more"); time.Sleep(time.Hour) },
	"unknown version":    func() { shakeHands("1|99|unix|fd:4|grpc"); time.Sleep(time.Hour) },
	"foreign socket":     func() { shakeHands("1|1|unix|/tmp/x|grpc"); time.Sleep(time.Hour) },
	"hangs up":           func() { shakeHands("1|1|unix|fd:4|grpc"); _ = syscall.Close(wire.ChannelFD); time.Sleep(time.Hour) },
	"speaks no gRPC":     func() { shakeHands("1|1|unix|fd:4|grpc"); flood(os.NewFile(wire.ChannelFD, "channel")) },
	"leaves children": func() {
		for range 20 {
			_ = exec.Command("sleep", "1000").Start()
		}
	},

	"another name":       rogue(func(r *bad) { r.metadata.Name = "better" }),
	"10 MB metadata":     rogue(func(r *bad) { r.metadata.SettingsSchema = strings.Repeat("x", 10<<20) }),
	"many abilities":     rogue(func(r *bad) { r.metadata.Abilities = make([]wire.Ability, 1_000_000) }),
	"hangs in Metadata":  rogue(func(r *bad) { r.describe = forever }),
	"hangs in Validate":  rogue(func(r *bad) { r.validate = forever }),
	"hangs in Configure": rogue(func(r *bad) { r.configure = forever }),
	"refuses": rogue(func(r *bad) {
		r.configure = func(context.Context) error { return ca.Errorf(ca.Invalid, "%s", strings.Repeat("no\n", 100_000)) }
	}),
	"away":              rogue(func(r *bad) { r.configure = away }),
	"dies in Configure": rogue(func(r *bad) { r.configure = func(context.Context) error { os.Exit(4); return nil } }),
	"dies each second":  rogue(func(*bad) { time.AfterFunc(time.Second, func() { os.Exit(5) }) }),
	"stops itself":      rogue(func(*bad) { time.AfterFunc(time.Second, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }) }),
	"hangs in CSRSign": rogue(func(r *bad) {
		r.sign = func(ctx context.Context) (ca.Certificate, error) { return ca.Certificate{}, forever(ctx) }
	}),
	"signs nothing": rogue(func(r *bad) { r.sign = func(context.Context) (ca.Certificate, error) { return ca.Certificate{}, nil } }),
	"boasts": rogue(func(r *bad) {
		r.sign = func(context.Context) (ca.Certificate, error) {
			return ca.Certificate{Chain: make([]byte, 100<<20)}, nil
		}
	}),
	"replies of 4 MiB": rogue(func(r *bad) {
		half := make([]byte, 2<<20-100)
		r.sign = func(context.Context) (ca.Certificate, error) { return ca.Certificate{Chain: half, Roots: half}, nil }
	}),
	"headers of 15 MiB": rogue(func(r *bad) {
		header := metadata.Pairs("x", strings.Repeat("x", 15<<20))
		r.sign = func(ctx context.Context) (ca.Certificate, error) {
			return ca.Certificate{}, errors.Join(grpc.SendHeader(ctx, header), ca.ErrDenied)
		}
	}),
	"denies": rogue(func(r *bad) {
		r.sign = func(context.Context) (ca.Certificate, error) { return ca.Certificate{}, ca.Errorf(ca.Denied, "never") }
	}),
	"forgets": rogue(func(r *bad) {
		r.sign = func(context.Context) (ca.Certificate, error) { return ca.Certificate{}, ca.ErrNotConfigured }
	}),
	"storms of roots": rogue(func(r *bad) { r.watch = storm }),
	"floods of roots": rogue(func(r *bad) {
		r.watch = func(_ context.Context, changed func([]byte) error) error {
			return changed([]byte(strings.Repeat(rootPEM(0), 2000)))
		}
	}),
}

// bad is a good provider but for what is set.
type bad struct {
	wire.Provider
	metadata                      wire.Metadata
	describe, validate, configure func(context.Context) error
	sign                          func(context.Context) (ca.Certificate, error)
	watch                         func(context.Context, func([]byte) error) error
}

func good() *bad {
	p := provider.Define("moody", "test", open).Provider()
	metadata, err := p.Metadata(context.Background())
	if err != nil {
		panic(err)
	}
	return &bad{Provider: p, metadata: metadata}
}

func rogue(change func(*bad)) func() {
	return func() {
		r := good()
		change(r)
		serve(r)
	}
}

func (b *bad) Metadata(ctx context.Context) (wire.Metadata, error) {
	if b.describe != nil {
		return wire.Metadata{}, b.describe(ctx)
	}
	return b.metadata, nil
}

func (b *bad) Validate(ctx context.Context, settings map[string]any) ([]wire.Diagnostic, error) {
	if b.validate != nil {
		return nil, b.validate(ctx)
	}
	var found []wire.Diagnostic
	err := untilThere(ctx, func() (err error) {
		if found, err = b.Provider.Validate(ctx, settings); err == nil && len(found) > 0 {
			err = errors.New("refused")
		}
		return err
	})
	return found, err
}

func (b *bad) Configure(ctx context.Context, settings map[string]any) error {
	if b.configure != nil {
		return b.configure(ctx)
	}
	return untilThere(ctx, func() error { return b.Provider.Configure(ctx, settings) })
}

// untilThere tries again while the provider "file" has not made the CA: who is refused its
// settings is ended before it was hostile.
func untilThere(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (b *bad) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if b.sign != nil {
		return b.sign(ctx)
	}
	return b.Provider.CSRSign(ctx, req)
}

func (b *bad) WatchRoots(ctx context.Context, changed func([]byte) error) error {
	if b.watch != nil {
		return b.watch(ctx, changed)
	}
	return b.Provider.WatchRoots(ctx, changed)
}

// forever ignores the context.
func forever(context.Context) error { time.Sleep(time.Hour); return nil }

func away(context.Context) error {
	return &ca.Error{Reason: ca.Unavailable, RetryAfter: time.Nanosecond, Message: "nobody is there"}
}

// storm tells another root as often as it can.
func storm(ctx context.Context, changed func([]byte) error) error {
	roots := sync.OnceValue(func() (all []string) {
		for i := range 50 {
			all = append(all, rootPEM(i))
		}
		return all
	})()
	for i := 0; ctx.Err() == nil; i++ {
		if err := changed([]byte(roots[i%len(roots)])); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// flood writes for as long as it lives. A write that fails once may succeed later.
func flood(to *os.File) {
	for {
		if _, err := fmt.Fprint(to, strings.Repeat("x", 1000), "\x00\a\n{\"@level\":1}\n"); err != nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// floodAfter floods once the handshake line is read.
func floodAfter(to *os.File) {
	time.Sleep(time.Second)
	flood(to)
}

// serveBeside is serve that also sends frames of its own, as many as it can.
func serveBeside(p wire.Provider, frame func(*http2.Framer) error) {
	beside = func(conn net.Conn) {
		time.Sleep(time.Second) // the connection is made
		var some bytes.Buffer
		framer := http2.NewFramer(&some, nil)
		for range 100 {
			_ = frame(framer)
		}
		for {
			if _, err := conn.Write(some.Bytes()); err != nil {
				return
			}
		}
	}
	serve(p)
}

// beside writes to the channel, too. Default: nothing.
var beside func(net.Conn)

// whole has one writer at a time. gRPC writes whole frames, if they are small.
type whole struct {
	net.Conn
	mu sync.Mutex
}

func (w *whole) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Conn.Write(b)
}

func shakeHands(line string) { fmt.Println(line) }

// serve serves whatever it is over the host's channel, and ends with its host.
func serve(p wire.Provider) {
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(wire.LifelineFD, "lifeline")) // to its end, however it comes in pieces
		os.Exit(0)
	}()
	conn, err := net.FileConn(os.NewFile(wire.ChannelFD, "channel"))
	if err != nil {
		panic(err)
	}
	conn = &whole{Conn: conn}
	if beside != nil {
		go beside(conn)
	}
	server := grpc.NewServer(grpc.MaxSendMsgSize(200 << 20))
	wire.Register(server, wire.V1(), p)
	serving := health.NewServer()
	serving.SetServingStatus(wire.HealthService, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, serving)
	shakeHands("1|1|unix|" + wire.ChannelAddress + "|grpc")
	_ = server.Serve(&one{conn: conn})
}

// one is a listener with one connection.
type one struct {
	conn net.Conn
	once sync.Once
}

func (o *one) Accept() (conn net.Conn, err error) {
	o.once.Do(func() { conn = o.conn })
	if conn == nil {
		time.Sleep(time.Hour)
	}
	return conn, nil
}
func (o *one) Close() error   { return nil }
func (o *one) Addr() net.Addr { return o.conn.LocalAddr() }
