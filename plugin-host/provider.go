package pluginhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Provider is a provider under supervision. Its methods may be called by any
// number of goroutines at once, and wait for a life of it that is ready: until the
// caller's deadline, or [Options.CallTimeout] where there is none. Abilities that it
// lacks answer [ca.ErrUnimplemented].
type Provider struct {
	*supervisor
	binary *binary // nil in process
	once   sync.Once
}

var (
	_ ca.Client         = (*Provider)(nil)
	_ ca.RootSource     = (*Provider)(nil)
	_ ca.RootWatcher    = (*Provider)(nil)
	_ ca.TokenExchanger = (*Provider)(nil)
)

// Open finds, verifies and starts the entry's provider, and returns when it is
// ready. A binary that may not run, a handshake that fails and settings that are
// refused are errors; a provider that says that its CA is away is opened all the
// same and gets ready later. ctx bounds the opening alone.
func Open(ctx context.Context, opts Options, entry Entry) (*Provider, error) {
	opts = opts.withDefaults()
	entry, err := entry.check(opts.Dev)
	if err != nil {
		return nil, err
	}
	found, err := Finder{Dirs: opts.Dirs}.Find(entry.Provider)
	if err != nil {
		return nil, fmt.Errorf("provider %q: %w", entry.Name, err)
	}
	real, err := inspect(found.Path)
	if err != nil {
		return nil, fmt.Errorf("provider %q: %w", entry.Name, err)
	}
	b, err := verify(real, entry.SHA256, receipts{opts.ReceiptDir, opts.Log})
	if err != nil {
		return nil, fmt.Errorf("provider %q: %w", entry.Name, err)
	}
	if entry.SHA256 == "" {
		opts.Log.Warn("a provider is started without a pin, as --dev allows", "provider", entry.Name, "path", found.Path, "sha256", b.sha256)
	}
	if missingProtection != "" {
		opts.Log.Warn("a protection is missing on this system", "missing", missingProtection)
	}
	s := newSupervisor(opts, entry, func(number int) (instance, error) { return spawn(opts, entry, b, number) })
	s.status.Path, s.status.SHA256 = found.Path, b.sha256
	p := &Provider{supervisor: s, binary: b}
	return p, p.open(ctx)
}

// InProcess supervises a provider without a process: for tests, and for agents
// that are one binary. Each life is a new value of make.
func InProcess(ctx context.Context, opts Options, entry Entry, make func() wire.Provider) (*Provider, error) {
	opts = opts.withDefaults()
	entry, err := entry.check(true)
	if err != nil {
		return nil, err
	}
	s := newSupervisor(opts, entry, func(int) (instance, error) { return newResident(make()), nil })
	p := &Provider{supervisor: s}
	return p, p.open(ctx)
}

// open starts the supervision and waits for its first word.
func (p *Provider) open(ctx context.Context) error {
	go p.run()
	select {
	case err := <-p.first:
		if err != nil {
			return errors.Join(fmt.Errorf("provider %q: %w", p.entry.Name, err), p.Close())
		}
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("provider %q: %w", p.entry.Name, context.Cause(ctx)), p.Close())
	}
}

// Close takes no new calls, waits for those in flight as long as
// [Options.StopTimeout] allows, and ends the process. It may be called twice and
// returns when nothing of the provider is left.
func (p *Provider) Close() error {
	p.once.Do(func() { close(p.closing) })
	<-p.closed
	if p.binary != nil {
		_ = p.binary.Close() // a second time it is closed already
	}
	return nil
}

// Status returns what is known now.
func (p *Provider) Status() Status { return p.gate.read() }

// CSRSign implements [ca.Client].
func (p *Provider) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	return call(ctx, p.supervisor, func(ctx context.Context, i instance) (ca.Certificate, error) { return i.CSRSign(ctx, req) })
}

// Roots implements [ca.RootSource].
func (p *Provider) Roots(ctx context.Context) ([]byte, error) {
	return call(ctx, p.supervisor, func(ctx context.Context, i instance) ([]byte, error) { return i.Roots(ctx) })
}

// ExchangeToken implements [ca.TokenExchanger].
func (p *Provider) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	return call(ctx, p.supervisor, func(ctx context.Context, i instance) (ca.ExchangedToken, error) { return i.ExchangeToken(ctx, req) })
}

// WatchRoots implements [ca.RootWatcher]. It goes on when the process is another:
// changed is called again only for roots that differ.
func (p *Provider) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	var last []byte
	for {
		l, err := p.gate.wait(ctx)
		if err != nil {
			return err
		}
		err = watchOne(ctx, l, func(roots []byte) error {
			if bytes.Equal(roots, last) {
				return nil
			}
			last = bytes.Clone(roots)
			return changed(roots)
		})
		if ctx.Err() != nil || !l.over() {
			return err
		}
	}
}

// watchOne watches until this life is about to end. It takes no place of a call's:
// it would keep it for ever.
func watchOne(ctx context.Context, l *life, changed func(roots []byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.leaving:
			cancel()
		case <-ctx.Done():
		}
	}()
	return l.WatchRoots(ctx, changed)
}

// over tells whether calls go to another life now, or soon will.
func (l *life) over() bool {
	// A stream can break a moment before its process is known to have ended.
	select {
	case <-l.leaving:
		return true
	case <-l.Ended():
		return true
	case <-time.After(time.Second):
		return false
	}
}

// call waits for a life, and makes one call of it. A provider that says it has no
// settings gets them and is asked once more.
func call[T any](ctx context.Context, s *supervisor, f func(context.Context, instance) (T, error)) (T, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.opts.CallTimeout)
		defer cancel()
	}
	var none T
	for {
		l, err := s.gate.wait(ctx)
		if err != nil {
			return none, err
		}
		entered, err := l.enter(ctx)
		if err != nil {
			return none, ca.Errorf(ca.ReasonFor(err), "provider %q: %d calls are in flight, none ended in time", s.entry.Name, cap(l.slots))
		}
		if !entered {
			continue
		}
		defer l.exit()
		out, err := f(ctx, l)
		if err != nil && ca.ActionFor(err) == ca.Configure && s.configureAgain(ctx, l) == nil {
			return f(ctx, l)
		}
		return out, err
	}
}
