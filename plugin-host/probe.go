package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/internal/host/address"
	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// ErrVersion is the error of [Probe.Connect] for a provider that chose a protocol version
// that was not offered.
var ErrVersion = process.ErrVersion

// Probe is one process of a provider, started like any other but driven step by step by
// its caller: nothing configures it, checks its health or restarts it. Call
// [Probe.Launch], [Probe.Connect], the provider's methods, then [Probe.Close], from one
// goroutine at a time. Experimental.
type Probe struct {
	wire.Provider // nil before Connect
	opts          Options
	plan          *Plan
	life          instance
	over          chan struct{} // closed by Close; the thread of the process lives until then
}

// NewProbe finds and verifies the entry's binary and starts nothing. Experimental.
func NewProbe(opts Options, entry Entry) (*Probe, error) {
	opts = opts.withDefaults()
	plan, err := newPlan(opts, entry)
	if err != nil {
		return nil, err
	}
	return &Probe{opts: opts, plan: plan, over: make(chan struct{})}, nil
}

// Launch starts the process.
func (p *Probe) Launch() error {
	launched := make(chan error)
	go func() {
		// The thread that starts a process must live as long as the process; see Provider.run.
		runtime.LockOSThread()
		process.ForbidPrivileges(p.opts.Log)
		life, err := p.plan.launch(1)
		p.life = life
		launched <- err
		<-p.over
	}()
	return exported(<-launched)
}

// Connect reads the handshake and reaches the provider, within [Options.StartTimeout].
func (p *Probe) Connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.opts.StartTimeout, fmt.Errorf("start timed out after %s", p.opts.StartTimeout))
	defer cancel()
	if err := p.life.Connect(ctx); err != nil {
		if ended := p.Why(err); process.HasEnded(p.life) {
			return fmt.Errorf("the provider ended before the handshake, run it by hand to see why: %w", ended)
		}
		return err
	}
	p.Provider = p.life
	return nil
}

// Metadata implements [wire.Provider]. It does not check the provider's name; the caller
// does.
func (p *Probe) Metadata(ctx context.Context) (wire.Metadata, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.CallTimeout)
	defer cancel()
	m, err := p.life.Metadata(ctx)
	if err != nil {
		return m, p.Why(fmt.Errorf("get metadata: %w", err))
	}
	return m, nil
}

// CSRSign implements [ca.Client]. As a [Provider] does, it adds the facts of the provider to its
// reply.
func (p *Probe) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	cert, err := p.Provider.CSRSign(ctx, req)
	if err == nil {
		cert.Facts = p.life.Report().Metadata.Facts
	}
	return cert, err
}

// Resolve returns the entry's settings with their references resolved and with its address; the
// schema in the provider's metadata marks the secret settings and the address. An error shows no
// value.
func (p *Probe) Resolve(ctx context.Context, schema string) (settings map[string]any, secrets []ca.Token, err error) {
	paths, err := reference.SecretPaths(schema)
	if err != nil {
		return nil, nil, err
	}
	resolved, err := p.plan.settings.Resolve(ctx, paths)
	if err != nil {
		return nil, resolved.Secrets, err
	}
	addresses, err := address.Of(schema)
	if err != nil {
		return nil, resolved.Secrets, err
	}
	settings, err = addresses.Apply(resolved.Settings, p.plan.entry.Address)
	return settings, resolved.Secrets, err
}

// Why returns how the provider ended, if it has: that has more detail than err, the error of a
// broken call. Otherwise it returns err.
func (p *Probe) Why(err error) error {
	if p.life == nil || !process.HasEnded(p.life) {
		return err
	}
	if process, ok := p.life.(*process.Process); ok {
		process.LastWords()
	}
	words := ""
	if crash := p.Status().Crash; len(crash) > 0 {
		words = "; last output: " + text.Clean(crash[len(crash)-1])
	}
	return errors.New(p.life.Err().Error() + words)
}

// Status describes the binary and its process.
func (p *Probe) Status() Status {
	s := p.plan.status()
	if p.life != nil {
		s.State = Starting
		s.take(p.life.Report())
	}
	return s.clone()
}

// Close ends the process and returns when nothing is left of it.
func (p *Probe) Close() {
	if p.life != nil {
		ctx, cancel := context.WithTimeout(context.Background(), p.opts.StopTimeout)
		defer cancel()
		p.life.Stop(ctx)
	}
	close(p.over)
	p.plan.close()
}

// What follows is for tests of a provider: it does to the process what hosts and
// machines do to it.

// Conn is the connection to the provider; nil before [Probe.Connect].
func (p *Probe) Conn() grpc.ClientConnInterface {
	if process, ok := p.life.(*process.Process); ok && process.Conn() != nil {
		return process.Conn()
	}
	return nil
}

// EndLifeline does what the end of this process would: the provider is to exit.
func (p *Probe) EndLifeline() {
	if process, ok := p.life.(*process.Process); ok {
		process.EndLifeline()
	}
}

// Stray returns how many bytes the provider wrote to standard output after its handshake
// line, once [Probe.Close] has returned.
func (p *Probe) Stray() int64 {
	if process, ok := p.life.(*process.Process); ok {
		return process.Stray()
	}
	return 0
}

// ExitCode waits for the end of the process and returns its exit status; -1 if a signal
// ended it.
func (p *Probe) ExitCode() int {
	if process, ok := p.life.(*process.Process); ok {
		return process.ExitCode()
	}
	return -1
}

// Ended is closed when the process has ended; Err then returns how.
func (p *Probe) Ended() <-chan struct{} { return p.life.Ended() }

// Err returns how the process ended.
func (p *Probe) Err() error { return p.life.Err() }
