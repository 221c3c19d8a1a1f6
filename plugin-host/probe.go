package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Probe is one process of a provider, started as every other is, and then walked
// through by its caller, step by step: nobody configures it, asks for its health or
// starts it again. Its methods are called one after the other: [Probe.Launch],
// [Probe.Connect], then those of the provider, at last [Probe.Close].
type Probe struct {
	wire.Provider // nil before Connect
	opts          Options
	plan          *plan
	life          instance
	over          chan struct{} // closed by Close; the thread of the process lives until then
}

// NewProbe finds and verifies the entry's binary, and starts nothing.
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
		// See supervisor.run: who starts a process keeps his thread as long as that lives.
		runtime.LockOSThread()
		forbidPrivileges(p.opts.Log)
		life, err := p.plan.launch(1)
		p.life = life
		launched <- err
		<-p.over
	}()
	return <-launched
}

// Connect reads the handshake and reaches the provider, within [Options.StartTimeout].
func (p *Probe) Connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.opts.StartTimeout, fmt.Errorf("it did not get through its start within %s", p.opts.StartTimeout))
	defer cancel()
	if c, ok := p.life.(connector); ok {
		if err := c.connect(ctx); err != nil {
			return p.Why(err)
		}
	}
	p.Provider = p.life
	return nil
}

// Metadata implements [wire.Provider]. The name is whatever the provider says: the
// caller compares it with the one he wants.
func (p *Probe) Metadata(ctx context.Context) (wire.Metadata, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.CallTimeout)
	defer cancel()
	m, err := p.life.Metadata(ctx)
	if err != nil {
		return m, p.Why(fmt.Errorf("ask what it is: %w", err))
	}
	return m, nil
}

// Why returns, of a provider that has ended, how it did: that says more than the
// error of a call that broke; else err.
func (p *Probe) Why(err error) error {
	if p.life == nil || !ended(p.life) {
		return err
	}
	if process, ok := p.life.(*process); ok {
		<-process.relay.done // its last words are read
	}
	words := ""
	if crash := p.Status().Crash; len(crash) > 0 {
		words = "; it wrote last: " + plain(crash[len(crash)-1])
	}
	return errors.New(p.life.Err().Error() + words)
}

// Status is what is known of the binary and of its process.
func (p *Probe) Status() Status {
	s := Status{Name: p.plan.entry.Name, State: Resolved}
	p.plan.describe(&s)
	if p.life != nil {
		s.State = Starting
		p.life.Describe(&s)
	}
	return s
}

// Close ends the process and returns when nothing of it is left.
func (p *Probe) Close() {
	if p.life != nil {
		ctx, cancel := context.WithTimeout(context.Background(), p.opts.StopTimeout)
		defer cancel()
		p.life.Stop(ctx)
	}
	close(p.over)
	p.plan.close()
}
