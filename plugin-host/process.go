package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// lastWords is how long the output of a process that ended is waited for: a child
// that it left behind may hold the pipe.
const lastWords = 500 * time.Millisecond

// process is an instance that is a process of its own.
type process struct {
	wire.Provider // set by connect
	opts          Options
	protocols     []int
	log           *slog.Logger

	cmd      *exec.Cmd
	pid      int
	runtime  *runtimeDir
	pipes    pipes
	keys     keys
	relay    *relay
	confined *confinement
	shake    handshake
	conn     *grpc.ClientConn
	metadata atomic.Pointer[wire.Metadata]

	ended  chan struct{}
	mu     sync.Mutex
	reaped bool  // its pid may be somebody else's
	err    error // why it ended; the first reason counts
}

// keys are made for one start: the host's own, and the pair handed to a provider
// that serves a socket itself.
type keys struct{ host, server *pair }

func newKeys() (keys, error) {
	host, err := newPair()
	if err != nil {
		return keys{}, err
	}
	server, err := newPair()
	return keys{host, server}, err
}

// spawn starts a process of the binary. It returns as soon as it runs; connect
// does the rest. It must be called on a thread that outlives the process.
func spawn(opts Options, entry Entry, b *binary, hold *restraint, number int) (instance, error) {
	if err := b.unchanged(); err != nil {
		return nil, err
	}
	p := &process{opts: opts, ended: make(chan struct{})}
	for _, protocol := range opts.Protocols {
		p.protocols = append(p.protocols, protocol.Version)
	}
	err := p.prepare(hold)
	if err == nil {
		err = p.start(entry, b, hold)
	}
	if err != nil {
		p.release()
		return nil, err
	}
	p.log = opts.Log.With("provider", entry.Name, "pid", p.pid, "generation", number)
	p.relay = newRelay(p.log)
	go p.relay.run(p.pipes.stderr)
	go p.await()
	if missing := p.confined.started(p.pid); len(missing) > 0 {
		p.log.Warn("limits of a provider cannot be applied here", "limits", missing.String())
	}
	p.pipes.handOver(wire.StartData{
		ServerCert: string(p.keys.server.certPEM), ServerKey: string(p.keys.server.keyPEM), ClientCert: string(p.keys.host.certPEM),
	})
	return p, nil
}

// prepare makes what the process will inherit.
func (p *process) prepare(hold *restraint) (err error) {
	if p.keys, err = newKeys(); err != nil {
		return fmt.Errorf("make keys for the start: %w", err)
	}
	if p.runtime, err = newRuntimeDir(p.opts.RuntimeDir); err != nil {
		return err
	}
	if err := hold.owns(p.runtime.path); err != nil {
		return err
	}
	p.pipes, err = newPipes()
	return err
}

// start executes what was verified.
func (p *process) start(entry Entry, b *binary, hold *restraint) (err error) {
	path, extra := b.command()
	attr := sysProcAttr()
	if p.confined, err = hold.confine(attr); err != nil {
		return err
	}
	p.cmd = &exec.Cmd{
		Path: path, Args: []string{b.path},
		Env:    environment(os.Environ(), hold.environment(), entry.Env, p.protocolEnv()),
		Stdout: p.pipes.childOut, Stderr: p.pipes.childErr, ExtraFiles: append(p.pipes.inherited(), extra...),
		SysProcAttr: attr,
	}
	err = p.opts.Groups.starting(func() (int, error) {
		if err := p.cmd.Start(); err != nil {
			return 0, err
		}
		p.pid = p.cmd.Process.Pid
		return p.pid, nil
	})
	p.pipes.closeChilds()
	if errors.Is(err, syscall.ENOEXEC) {
		return refuse(b.path, "%s", whyNotExecutable(b.file))
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", b.path, err)
	}
	return nil
}

func (p *process) protocolEnv() []string {
	versions := strings.Trim(strings.ReplaceAll(fmt.Sprint(p.protocols), " ", ","), "[]")
	env := []string{
		wire.MagicCookieKey + "=" + wire.MagicCookieValue,
		wire.EnvVersions + "=" + versions,
		wire.EnvSocketDir + "=" + p.runtime.path,
		wire.EnvClientCert + "=" + string(p.keys.host.certPEM),
		"PLUGIN_MIN_PORT=10000", "PLUGIN_MAX_PORT=25000", // stock plugin.Serve needs them where it has no unix sockets
	}
	return append(env, p.pipes.env()...)
}

// await sees the end of the process, takes what is left of its group along, and
// tells.
func (p *process) await() {
	awaitExit(p.pid) // and leave it unreaped: until then the group's id is nobody else's
	p.mu.Lock()
	killGroup(p.pid)
	p.reaped = true
	p.mu.Unlock()
	err := p.cmd.Wait()
	if err == nil {
		err = errors.New("it exited with status 0")
	} else {
		err = fmt.Errorf("it ended: %w", err)
	}
	p.opts.Groups.ended(p.pid)
	p.confined.ended()
	p.fail(err)
	p.pipes.expire(lastWords)
	close(p.ended)
}

// fail notes why it ends; the first reason counts.
func (p *process) fail(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = reason
	}
}

// Ended implements instance.
func (p *process) Ended() <-chan struct{} { return p.ended }

// Err implements instance.
func (p *process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Kill implements instance.
func (p *process) Kill(reason error) {
	p.fail(reason)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		killGroup(p.pid)
		_ = p.cmd.Process.Kill() // where there are no groups
	}
}

// connect reads the handshake line and reaches the provider as that line says.
func (p *process) connect(ctx context.Context) error {
	line, err := p.pipes.firstLine(ctx)
	if err != nil {
		return p.silent(ctx, line, err)
	}
	if p.shake, err = parseHandshake(line, p.protocols, p.runtime.path); err != nil {
		return err
	}
	if p.shake.auth == Channel {
		p.runtime.remove() // it has no socket; so a host that is killed leaves no folder behind
	}
	go p.ignoreStdout()
	credentials, dial := p.reach()
	p.conn, err = grpc.NewClient("passthrough:///provider",
		grpc.WithTransportCredentials(credentials), grpc.WithContextDialer(dial), grpc.WithAuthority("localhost"),
		grpc.WithIdleTimeout(0), // an idle channel must not be closed: there is no second one
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		return err
	}
	p.Provider = wire.NewRemote(p.conn, wire.RemoteOptions{Protocol: p.protocol(), Timeout: p.opts.CallTimeout})
	return nil
}

func (p *process) protocol() wire.Protocol {
	for _, protocol := range p.opts.Protocols {
		if protocol.Version == p.shake.version {
			return protocol
		}
	}
	return wire.V1()
}

// silent says why there is no handshake line.
func (p *process) silent(ctx context.Context, line string, err error) error {
	if !errors.Is(err, io.EOF) {
		return errors.Join(context.Cause(ctx), err)
	}
	select {
	case <-p.ended: // says why
		return p.Err()
	case <-ctx.Done():
	case <-time.After(lastWords):
	}
	return fmt.Errorf("it closed its standard output before its handshake line was whole: %s", foreign(line))
}

// ignoreStdout reads what must not be there, so that nobody blocks on it.
func (p *process) ignoreStdout() {
	if n, _ := io.Copy(io.Discard, p.pipes.stdout); n > 0 {
		p.log.Warn("provider wrote on standard output after its handshake line; that was thrown away", "bytes", n)
	}
}

// dialChannel hands the inherited connection over, once.
func (p *process) dialChannel(context.Context, string) (net.Conn, error) {
	conn := p.pipes.takeChannel()
	if conn == nil {
		err := errors.New("its channel broke")
		p.Kill(err)
		return nil, err
	}
	return conn, nil
}

func (p *process) dialSocket(ctx context.Context, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, p.shake.network, p.shake.address)
}

// Metadata implements [wire.Provider], and remembers.
func (p *process) Metadata(ctx context.Context) (wire.Metadata, error) {
	m, err := p.Provider.Metadata(ctx)
	if err == nil {
		p.metadata.Store(&m)
	}
	return m, err
}

// Health implements instance.
func (p *process) Health(ctx context.Context) error {
	_, err := healthv1.NewHealthClient(p.conn).Check(ctx, &healthv1.HealthCheckRequest{Service: wire.HealthService})
	return wire.FromStatus(err)
}

// Stop implements instance.
func (p *process) Stop(ctx context.Context) {
	p.pipes.endLifeline()
	if p.shake.auth != Channel {
		p.terminate() // stock plugin.Serve knows no lifeline
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.Kill(errors.New("it did not end in time"))
		<-p.ended
	}
	<-p.relay.done
	p.release()
}

func (p *process) terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// release gives back what prepare made.
func (p *process) release() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.pipes.close()
	p.confined.ended()
	if p.runtime != nil {
		p.runtime.remove()
	}
}

// Describe implements instance.
func (p *process) Describe(s *Status) {
	s.PID = p.pid
	if ended(p) {
		s.PID, s.Crash = 0, p.relay.lines()
	}
	if m := p.metadata.Load(); m != nil {
		s.Metadata, s.Authentication, s.Protocol = *m, p.shake.auth, p.shake.version
	}
}
