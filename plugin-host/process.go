package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/countersign-dev/countersign/plugin-host/internal/confine"
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
	readers  sync.WaitGroup // of what is not the relay's
	confined *confine.Confinement
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
func spawn(opts Options, entry Entry, b *binary, hold *confine.Restraint, number int) (instance, error) {
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
	go p.relay.run(io.TeeReader(p.pipes.stderr, p.opts.Stderr))
	go p.await()
	if missing := p.confined.Started(p.pid); len(missing) > 0 {
		p.log.Warn(limitsMissing, "limits", missing.String())
	}
	p.pipes.handOver(wire.StartData{
		ServerCert: string(p.keys.server.certPEM), ServerKey: string(p.keys.server.keyPEM), ClientCert: string(p.keys.host.certPEM),
	})
	return p, nil
}

// prepare makes what the process will inherit.
func (p *process) prepare(hold *confine.Restraint) (err error) {
	if p.keys, err = newKeys(); err != nil {
		return fmt.Errorf("make keys for the start: %w", err)
	}
	if p.runtime, err = newRuntimeDir(p.opts.RuntimeDir); err != nil {
		return err
	}
	if err := hold.Owns(p.runtime.path); err != nil {
		return err
	}
	p.pipes, err = newPipes()
	return err
}

// start executes what was verified.
func (p *process) start(entry Entry, b *binary, hold *confine.Restraint) (err error) {
	path, extra := b.command()
	attr := sysProcAttr()
	if p.confined, err = hold.Confine(attr); err != nil {
		return err
	}
	p.cmd = &exec.Cmd{
		Path: path, Args: []string{b.path},
		Env:    environment(os.Environ(), hold.Environment(), entry.Env, p.protocolEnv(b)),
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
	if errors.Is(err, syscall.EACCES) && mountedNoexec(b.file) {
		return refuse(b.path, "its file system is mounted noexec; move it to another, or mount that one without")
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", b.path, err)
	}
	return nil
}

func (p *process) protocolEnv(b *binary) []string {
	versions := strings.Trim(strings.ReplaceAll(fmt.Sprint(p.protocols), " ", ","), "[]")
	env := []string{
		wire.MagicCookieKey + "=" + wire.MagicCookieValue,
		wire.EnvVersions + "=" + versions,
		wire.EnvSocketDir + "=" + p.runtime.path,
		wire.EnvBinary + "=" + b.path,
		wire.EnvClientCert + "=" + string(p.keys.host.certPEM),
		"PLUGIN_MIN_PORT=10000", "PLUGIN_MAX_PORT=25000", // stock plugin.Serve needs them where it has no unix sockets
	}
	return append(env, p.pipes.env()...)
}

// await sees the end of the process, takes what is left of its group along, and
// tells.
func (p *process) await() {
	unreaped := awaitExit(p.pid) // until it is reaped the group's id is nobody else's
	if unreaped {
		p.endGroup()
	}
	err := p.cmd.Wait()
	if !unreaped {
		p.endGroup()
	}
	if err == nil {
		err = errors.New("it exited with status 0")
	} else {
		err = fmt.Errorf("it ended: %w", err)
	}
	p.opts.Groups.ended(p.pid)
	p.confined.Ended()
	p.fail(err)
	p.pipes.expire(lastWords)
	close(p.ended)
}

func (p *process) endGroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	killGroup(p.pid)
	p.reaped = true
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
	p.readers.Wait() // what they saw is in the log
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
	p.confined.Ended()
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
