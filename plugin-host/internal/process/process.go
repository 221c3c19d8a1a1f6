package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/countersign-dev/countersign/internal/host/command"
	"github.com/countersign-dev/countersign/internal/host/selfsigned"
	"github.com/countersign-dev/countersign/plugin-host/internal/confine"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// lastWords is how long to read the output of a process that has ended: a child that it
// left behind may hold the pipe open.
const lastWords = 500 * time.Millisecond

// Process is one running provider. Calls after its end fail with Unavailable.
type Process struct {
	wire.Provider // set by Connect
	opts          Options
	protocols     []int
	log           *slog.Logger

	cmd          *exec.Cmd
	pid          int
	folder       *Folder
	pipes        pipes
	host, server *selfsigned.Pair // of this start: ours, and the one for a provider that serves a socket itself
	relay        *relay
	readers      sync.WaitGroup // all readers but the relay
	confined     *confine.Confinement
	shake        handshake
	conn         *grpc.ClientConn
	metadata     atomic.Pointer[wire.Metadata]
	stray        atomic.Int64 // bytes on standard output after the handshake line

	ended  chan struct{}
	mu     sync.Mutex
	reaped bool  // another process may have its pid
	err    error // why it ended; the first reason counts
}

// await waits for the end of the process, kills the rest of its group and closes ended.
func (p *Process) await() {
	unreaped := command.AwaitExit(p.pid) // until it is reaped, no other group can have its id
	if unreaped {
		p.endGroup()
	}
	err := p.cmd.Wait()
	if !unreaped {
		p.endGroup()
	}
	if err == nil {
		err = errors.New("exited: exit status 0")
	} else {
		err = fmt.Errorf("exited: %w", err)
	}
	p.opts.Groups.ended(p.pid)
	p.confined.Ended()
	p.exited(err)
	p.pipes.expire(lastWords)
	close(p.ended)
}

func (p *Process) endGroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	killGroup(p.pid)
	p.reaped = true
}

// fail records why it ends; the first reason counts.
func (p *Process) fail(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = reason
	}
}

// exited records how it exited. Its own exit status has more detail than a symptom such as a
// broken channel; after a kill the reason for the kill counts.
func (p *Process) exited(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil || p.cmd.ProcessState.Exited() && runtime.GOOS != "windows" {
		p.err = err
	}
}

// Ended is closed once the process has ended, by itself or not; Err then returns why.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err returns why it ended.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Kill ends it at once; reason becomes Err, unless there is one.
func (p *Process) Kill(reason error) {
	p.fail(reason)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		killGroup(p.pid)
		_ = p.cmd.Process.Kill() // on systems without groups
	}
}

// Metadata implements [wire.Provider] and remembers the result for Report.
func (p *Process) Metadata(ctx context.Context) (wire.Metadata, error) {
	m, err := p.Provider.Metadata(ctx)
	if err == nil {
		p.metadata.Store(&m)
	}
	return m, err
}

// Health checks whether it is alive.
func (p *Process) Health(ctx context.Context) error {
	_, err := healthv1.NewHealthClient(p.conn).Check(ctx, &healthv1.HealthCheckRequest{Service: wire.HealthService})
	return wire.FromStatus(err)
}

// lifelineGrace is how long before its kill a process that ignores SIGTERM loses its
// lifeline.
const lifelineGrace = time.Second

// Stop asks it to end, kills it if it has not when ctx ends, and returns when nothing
// is left of it. It must be called once.
//
// It sends SIGTERM and then ends the lifeline, which has a provider exit at once: its
// authority could close nothing, such as a session at its CA.
func (p *Process) Stop(ctx context.Context) {
	if !p.terminate() || !p.endsBefore(ctx, lifelineGrace) {
		p.pipes.endLifeline()
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.Kill(errors.New("did not exit in time"))
		<-p.ended
	}
	<-p.relay.done
	p.readers.Wait() // what they read is logged
	p.release()
}

// terminate reports whether it could send SIGTERM.
func (p *Process) terminate() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped && p.cmd.Process.Signal(syscall.SIGTERM) == nil
}

// endsBefore waits for its end until so long before ctx ends.
func (p *Process) endsBefore(ctx context.Context, grace time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok {
		early, cancel := context.WithDeadline(ctx, deadline.Add(-grace))
		defer cancel()
		ctx = early
	}
	select {
	case <-p.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// release frees what prepare made.
func (p *Process) release() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.pipes.close()
	p.confined.Ended()
	if p.folder != nil {
		p.folder.Remove()
	}
}

// Report returns what is known about it.
func (p *Process) Report() Report {
	r := Report{PID: p.pid}
	if HasEnded(p) {
		r.PID, r.Crash = 0, p.relay.lines()
	}
	if m := p.metadata.Load(); m != nil {
		r.Metadata, r.Authentication, r.Protocol = *m, p.shake.auth, p.shake.version
	}
	return r
}

// HasEnded reports whether a life is over.
func HasEnded(life interface{ Ended() <-chan struct{} }) bool {
	select {
	case <-life.Ended():
		return true
	default:
		return false
	}
}

// Hide keeps values out of what is logged of the process's own output and of its crash report,
// in addition to earlier ones. One goroutine at a time calls it.
func (p *Process) Hide(values []ca.Token) { p.relay.hidden.Add(values...) }

// LastWords waits until the standard error of the ended process is read.
func (p *Process) LastWords() { <-p.relay.done }

// Stray returns how many bytes it wrote to standard output after the handshake line, once Stop
// has returned.
func (p *Process) Stray() int64 { return p.stray.Load() }

// ExitCode returns its exit status once it has ended; -1 if a signal ended it.
func (p *Process) ExitCode() int {
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// Conn is the connection to the provider; nil before Connect.
func (p *Process) Conn() *grpc.ClientConn { return p.conn }

// EndLifeline closes the lifeline, as the end of this process would: the provider must
// exit.
func (p *Process) EndLifeline() { p.pipes.endLifeline() }
