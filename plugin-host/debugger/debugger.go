package debugger

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
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

	"github.com/countersign-dev/countersign/internal/host/selfsigned"
	"github.com/countersign-dev/countersign/plugin-host/internal/attach"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// agentSocket is the name of the socket that agents attach to, in the private folder.
const agentSocket = "agent"

// connectTimeout bounds TLS and the first frames of a provider that serves already.
const connectTimeout = 5 * time.Second

// callTimeout bounds a call whose caller set no deadline.
const callTimeout = 30 * time.Second

// Debugger connects agents to one provider that its author starts by hand, for example in
// a debugger. The provider serves as stock go-plugin does, in a private folder, and accepts
// only the Debugger (mutual TLS). Agents attach to [Debugger.Socket] (Entry.Attach of
// package pluginhost). Both must be processes of this user. The Debugger cannot know the
// provider's certificate, as the handshake line goes to the author's terminal. The author
// may restart the provider at any time.
type Debugger struct {
	folder *process.Folder
	host   *selfsigned.Pair
	conn   *grpc.ClientConn
	remote *wire.Remote
	server *grpc.Server
	served chan struct{}
	starts *starts
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
	if d.host, err = selfsigned.New(); err != nil {
		return err
	}
	d.conn, err = grpc.NewClient("passthrough:///provider",
		grpc.WithContextDialer(d.dial), grpc.WithTransportCredentials(plainOverChannel{credentials.NewTLS(d.tls())}), grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(), grpc.WithMaxHeaderListSize(wire.MaxHeaders), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second},
			MinConnectTimeout: connectTimeout,
		}),
	)
	if err != nil {
		return err
	}
	d.remote = wire.NewRemote(d.conn, wire.RemoteOptions{Timeout: callTimeout})
	listener, err := net.Listen("unix", d.Socket())
	if err != nil {
		return err
	}
	if d.starts, err = newStarts(d.folder.Path, d.host); err != nil {
		return errors.Join(err, listener.Close())
	}
	d.server = grpc.NewServer(wire.ServerOptions(log)...)
	wire.Register(d.server, wire.V1(), d.remote)
	// Always serving: a provider at a breakpoint is not dead.
	serving := health.NewServer()
	serving.SetServingStatus(wire.HealthService, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(d.server, serving)
	go func() {
		defer close(d.served)
		_ = d.server.Serve(attach.SameUser(listener)) // only Close ends it
	}()
	return nil
}

// tls presents ours and accepts any certificate: dial checked that the peer is a process
// of this user, in this folder.
func (d *Debugger) tls() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{d.host.TLS},
		InsecureSkipVerify: true, //nolint:gosec // see above
	}
}

// Folder is the private folder; more files can go beside the sockets.
func (d *Debugger) Folder() string { return d.folder.Path }

// Socket is what agents attach to.
func (d *Debugger) Socket() string { return filepath.Join(d.folder.Path, agentSocket) }

// Environment returns the variables that make a process the provider. None is secret.
func (d *Debugger) Environment() []string {
	return []string{
		wire.MagicCookieKey + "=" + wire.MagicCookieValue, wire.EnvVersions + "=1",
		wire.EnvSocketDir + "=" + d.folder.Path, wire.EnvClientCert + "=" + string(d.host.CertPEM),
	}
}

// dial connects to the provider that was started last.
func (d *Debugger) dial(ctx context.Context, _ string) (net.Conn, error) {
	if conn := d.starts.serving(); conn != nil {
		return conn, nil
	}
	paths, err := filepath.Glob(filepath.Join(d.folder.Path, "p*")) // go-plugin calls them plugin*, ours provider*
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
	return attach.Dial(ctx, newest)
}

// Await waits until a provider serves and returns its metadata.
func (d *Debugger) Await(ctx context.Context) (wire.Metadata, error) {
	for {
		if err := d.connected(ctx); err != nil {
			return wire.Metadata{}, err
		}
		m, err := d.remote.Metadata(ctx)
		if ca.ReasonFor(err) != ca.Unavailable || ctx.Err() != nil {
			return m, err
		}
		select { // that one has just ended
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

// Close disconnects agents and provider and removes the folder. The provider's process
// goes on.
func (d *Debugger) Close() {
	d.server.Stop()
	<-d.served
	d.starts.Close()
	_ = d.conn.Close()
	d.folder.Remove()
}
