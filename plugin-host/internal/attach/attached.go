// Package attach connects the host to a provider that its author started, behind the socket of
// package debugger. Both ends of that socket are processes of the same user.
// Package attach connects the host to a provider that its author started, behind the socket of
// package debugger. Both ends of a socket are processes of the same user.
package attach

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// errDetached ends a life that did nothing wrong.
var errDetached = errors.New("closed by the host")

// Attached is a provider behind a debugger, which its author started.
type Attached struct {
	wire.Provider // set by Connect
	path          string
	timeout       time.Duration // of a call
	conn          *grpc.ClientConn
	metadata      atomic.Pointer[wire.Metadata]

	mu    sync.Mutex
	err   error
	ended chan struct{}
}

// New returns one that is not connected yet.
func New(path string, callTimeout time.Duration) *Attached {
	return &Attached{path: path, timeout: callTimeout, ended: make(chan struct{})}
}

// Check fails if another user could have put the socket there.
func Check(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return verified.Refuse(path, "cannot attach a provider: %v; start countersign provider debug, which prints the socket", err)
	case info.Mode().Type() != os.ModeSocket:
		return verified.Refuse(path, "not a socket; use the one that countersign provider debug prints")
	}
	folder := filepath.Dir(path)
	private, err := os.Stat(folder)
	if err != nil {
		return err
	}
	if private.Mode().Perm()&0o077 != 0 {
		return verified.Refuse(path, "its folder is not private (mode %04o); run chmod 0700 %s", private.Mode().Perm(), folder)
	}
	return errors.Join(verified.CheckOwner(path, folder, private), verified.CheckOwner(path, path, info))
}

// Connect connects to the Debugger.
func (a *Attached) Connect(context.Context) (err error) {
	if err := Check(a.path); err != nil {
		return err
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return Dial(ctx, a.path) }
	a.conn, err = grpc.NewClient("passthrough:///provider",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // checkPeer authenticates the unix socket
		grpc.WithContextDialer(dial), grpc.WithAuthority("localhost"), grpc.WithNoProxy(), grpc.WithMaxHeaderListSize(wire.MaxHeaders), grpc.WithDisableServiceConfig())
	if err == nil {
		a.Provider = wire.NewRemote(a.conn, wire.RemoteOptions{Timeout: a.timeout})
	}
	return err
}

// Ended is closed when the host has given it up; Err then returns why.
func (a *Attached) Ended() <-chan struct{} { return a.ended }

// Err returns why the host gave it up.
func (a *Attached) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Health checks whether the Debugger is alive.
func (a *Attached) Health(ctx context.Context) error {
	_, err := healthv1.NewHealthClient(a.conn).Check(ctx, &healthv1.HealthCheckRequest{Service: wire.HealthService})
	return wire.FromStatus(err)
}

// Kill gives it up; the process lives on.
func (a *Attached) Kill(reason error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = reason
		close(a.ended)
	}
}

// Stop gives it up and closes the connection.
func (a *Attached) Stop(context.Context) {
	a.Kill(errDetached)
	if a.conn != nil {
		_ = a.conn.Close()
	}
}

// Hide does nothing: what it writes goes to its author's terminal.
func (a *Attached) Hide([]ca.Token) {}

// Metadata implements [wire.Provider] and remembers the result for Report.
func (a *Attached) Metadata(ctx context.Context) (wire.Metadata, error) {
	m, err := a.Provider.Metadata(ctx)
	if err == nil {
		a.metadata.Store(&m)
	}
	return m, err
}

// Report describes it.
func (a *Attached) Report() process.Report {
	r := process.Report{Authentication: process.Attached, Protocol: 1}
	if m := a.metadata.Load(); m != nil {
		r.Metadata = *m
	}
	return r
}
