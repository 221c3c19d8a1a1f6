package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// sameUser is a listener that takes connections of this user alone.
type sameUser struct{ net.Listener }

// Accept implements [net.Listener].
func (l sameUser) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || checkPeer(conn) == nil {
			return conn, err
		}
		_ = conn.Close()
	}
}

// dialSameUser connects to a socket that a process of this user serves.
func dialSameUser(ctx context.Context, path string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// checkPeer refuses the other end of a unix socket that is not of this user.
func checkPeer(conn net.Conn) error {
	uid, err := peerUID(conn.(*net.UnixConn)) //nolint:errcheck // both ways to get one are unix sockets
	if err == nil && uid != os.Geteuid() {
		err = fmt.Errorf("the process at the socket is of uid %d, not of the user that runs this (uid %d)", uid, os.Geteuid())
	}
	return err
}

// attached is an instance that somebody else has started, behind a [Debugger].
type attached struct {
	wire.Provider // set by connect
	path          string
	opts          Options
	conn          *grpc.ClientConn

	mu    sync.Mutex
	err   error
	ended chan struct{}
}

func newAttached(opts Options, path string) *attached {
	return &attached{path: path, opts: opts, ended: make(chan struct{})}
}

// checkAttach demands that nobody else can have put the socket there.
func checkAttach(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return refuse(path, "no provider can be attached there: %v; start countersign provider debug, which prints the socket", err)
	case info.Mode().Type() != os.ModeSocket:
		return refuse(path, "it is no socket; attach to the one that countersign provider debug prints")
	}
	folder := filepath.Dir(path)
	private, err := os.Stat(folder)
	if err != nil {
		return err
	}
	if private.Mode().Perm()&0o077 != 0 {
		return refuse(path, "its folder is not private (mode %04o); chmod 0700 %s", private.Mode().Perm(), folder)
	}
	return errors.Join(checkOwner(path, folder, private), checkOwner(path, path, info))
}

// connect implements connector.
func (a *attached) connect(context.Context) (err error) {
	if err := checkAttach(a.path); err != nil {
		return err
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return dialSameUser(ctx, a.path) }
	a.conn, err = grpc.NewClient("passthrough:///provider",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the kernel says who is at a unix socket
		grpc.WithContextDialer(dial), grpc.WithAuthority("localhost"), grpc.WithNoProxy(), grpc.WithDisableServiceConfig())
	if err == nil {
		a.Provider = wire.NewRemote(a.conn, wire.RemoteOptions{Timeout: a.opts.CallTimeout})
	}
	return err
}

// Ended implements instance.
func (a *attached) Ended() <-chan struct{} { return a.ended }

// Err implements instance.
func (a *attached) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Health implements instance.
func (a *attached) Health(ctx context.Context) error {
	_, err := healthv1.NewHealthClient(a.conn).Check(ctx, &healthv1.HealthCheckRequest{Service: wire.HealthService})
	return wire.FromStatus(err)
}

// Kill implements instance: it is given up, and lives on.
func (a *attached) Kill(reason error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = reason
		close(a.ended)
	}
}

// Stop implements instance.
func (a *attached) Stop(context.Context) {
	a.Kill(errClosing)
	if a.conn != nil {
		_ = a.conn.Close()
	}
}

// Describe implements instance.
func (a *attached) Describe(s *Status) { s.PID, s.Authentication, s.Protocol = 0, Attached, 1 }
