package debugger

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// agentSocket is the socket's name, in the private folder, where agents attach.
const agentSocket = "agent"

// callTimeout bounds a call whose caller set no deadline.
const callTimeout = 30 * time.Second

// Debugger stands between agents and one provider that its author starts by himself,
// in a debugger for one. The provider serves as stock go-plugin does, in a private
// folder, and takes nobody but the Debugger (mutual TLS); agents attach to
// [Debugger.Socket] (Entry.Attach of package pluginhost). Both must be processes of this user. What
// the provider's certificate is cannot be known: the line that says so goes to the
// author's terminal. It may end and be started again as often as he likes.
type Debugger struct {
	folder *process.Folder
	host   *process.Pair
	conn   *grpc.ClientConn
	remote *wire.Remote
	server *grpc.Server
	served chan struct{}
}

// New makes the private folder below runtimeDir (default: the system's folder for
// temporary files) and serves agents.
func New(runtimeDir string, log *slog.Logger) (*Debugger, error) {
	folder, err := process.NewFolder(cmp.Or(runtimeDir, os.TempDir()))
	if err != nil {
		return nil, err
	}
	d := &Debugger{folder: folder, served: make(chan struct{})}
	if err := d.open(log); err != nil {
		folder.Remove()
		return nil, err
	}
	return d, nil
}

func (d *Debugger) open(log *slog.Logger) (err error) {
	if d.host, err = process.NewPair(); err != nil {
		return err
	}
	d.conn, err = grpc.NewClient("passthrough:///provider",
		grpc.WithContextDialer(d.dial), grpc.WithTransportCredentials(credentials.NewTLS(d.tls())), grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}}),
	)
	if err != nil {
		return err
	}
	d.remote = wire.NewRemote(d.conn, wire.RemoteOptions{Timeout: callTimeout})
	listener, err := net.Listen("unix", d.Socket())
	if err != nil {
		return err
	}
	d.server = grpc.NewServer(wire.ServerOptions(log)...)
	wire.Register(d.server, wire.V1(), d.remote)
	// Serving, whatever the provider does: one that stands at a breakpoint is not dead.
	serving := health.NewServer()
	serving.SetServingStatus(wire.HealthService, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(d.server, serving)
	go func() {
		defer close(d.served)
		_ = d.server.Serve(sameUser{listener}) // it ends by Close alone
	}()
	return nil
}

// tls presents ours and takes any certificate: that the peer is of this user, in this
// folder, was seen on the socket.
func (d *Debugger) tls() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{d.host.TLS},
		InsecureSkipVerify: true, //nolint:gosec // see above
	}
}

// Folder is the private folder, for what belongs beside the sockets.
func (d *Debugger) Folder() string { return d.folder.Path }

// Socket is what agents attach to.
func (d *Debugger) Socket() string { return filepath.Join(d.folder.Path, agentSocket) }

// Environment are the variables that make a process the provider. None is a secret.
func (d *Debugger) Environment() []string {
	return []string{
		wire.MagicCookieKey + "=" + wire.MagicCookieValue, wire.EnvVersions + "=1",
		wire.EnvSocketDir + "=" + d.folder.Path, wire.EnvClientCert + "=" + string(d.host.CertPEM),
	}
}

// dial reaches the provider that was started last.
func (d *Debugger) dial(ctx context.Context, _ string) (net.Conn, error) {
	paths, err := filepath.Glob(filepath.Join(d.folder.Path, "plugin*")) // as go-plugin calls them
	if err != nil {
		return nil, err
	}
	var newest string
	var made time.Time
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket && !info.ModTime().Before(made) {
			newest, made = path, info.ModTime()
		}
	}
	if newest == "" {
		return nil, fmt.Errorf("no provider serves in %s yet", d.folder.Path)
	}
	return dialSameUser(ctx, newest)
}

// Await waits until a provider serves, and asks what it is.
func (d *Debugger) Await(ctx context.Context) (wire.Metadata, error) {
	for {
		if err := d.connected(ctx); err != nil {
			return wire.Metadata{}, err
		}
		m, err := d.remote.Metadata(ctx)
		if ca.ReasonFor(err) != ca.Unavailable || ctx.Err() != nil {
			return m, err
		}
		select { // it was one that has just ended
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (d *Debugger) connected(ctx context.Context) error {
	for {
		state := d.conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		d.conn.Connect()
		if !d.conn.WaitForStateChange(ctx, state) {
			return context.Cause(ctx)
		}
	}
}

// Close lets agents and provider go, and removes the folder. The provider's process is
// its author's: it goes on.
func (d *Debugger) Close() {
	d.server.Stop()
	<-d.served
	_ = d.conn.Close()
	d.folder.Remove()
}
