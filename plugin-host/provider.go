package pluginhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/confine"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Provider is a provider under supervision. Its methods may be called by any
// number of goroutines at once, and wait for a life of it that is ready: until the
// caller's deadline, or [Options.CallTimeout] where there is none. Abilities that it
// lacks answer [ca.ErrUnimplemented].
type Provider struct {
	*supervisor
	name      string
	plans     func(Entry) (*plan, error) // finds and verifies
	begun     sync.Once                  // by Start, or by Close in its stead
	close     sync.Once
	reloading sync.Mutex // held by the one Reload
}

var (
	_ ca.Client         = (*Provider)(nil)
	_ ca.RootSource     = (*Provider)(nil)
	_ ca.RootWatcher    = (*Provider)(nil)
	_ ca.TokenExchanger = (*Provider)(nil)
)

// Open finds, verifies and starts the entry's provider, and returns when it is
// ready: [Find], and [Provider.Start]. ctx bounds the opening alone.
func Open(ctx context.Context, opts Options, entry Entry) (*Provider, error) {
	p, err := Find(opts, entry)
	if err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

// Find finds and verifies the entry's binary and starts nothing: a binary that may
// not run is an error. Calls of the Provider wait for [Provider.Start]; whoever
// does not call that calls [Provider.Close].
func Find(opts Options, entry Entry) (*Provider, error) {
	opts = opts.withDefaults()
	if missingProtection != "" {
		opts.Log.Warn("protection unavailable on this system", "missing", missingProtection)
	}
	return newProvider(opts, entry, func(entry Entry) (*plan, error) { return newPlan(opts, entry) })
}

// InProcess supervises a provider without a process: for tests, and for agents
// that are one binary. Each life is a new value of make.
func InProcess(ctx context.Context, opts Options, entry Entry, make func() wire.Provider) (*Provider, error) {
	p, err := newProvider(opts.withDefaults(), entry, func(entry Entry) (*plan, error) {
		entry, err := entry.withDefaults(true)
		return &plan{entry: entry, launch: func(int) (instance, error) { return newResident(make()), nil }}, err
	})
	if err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

func newProvider(opts Options, entry Entry, plans func(Entry) (*plan, error)) (*Provider, error) {
	first, err := plans(entry)
	if err != nil {
		return nil, err
	}
	return &Provider{supervisor: newSupervisor(opts, first), name: entry.Name, plans: plans}, nil
}

const limitsMissing = "limits of a provider cannot be applied here"

// newPlan finds and verifies the binary of an entry.
func newPlan(opts Options, entry Entry) (*plan, error) {
	entry, err := entry.withDefaults(opts.Dev)
	if err != nil {
		return nil, err
	}
	if entry.Attach != "" {
		return attachPlan(opts, entry)
	}
	path, b, err := locate(opts, entry)
	if err != nil {
		return nil, fmt.Errorf("provider %q: %w", entry.Name, err)
	}
	hold, missing, err := confine.New(entry.Name, entry.User, entry.Limits)
	if err != nil {
		_ = b.Close()
		return nil, &EntryError{entry.Name, err}
	}
	if len(missing) > 0 {
		opts.Log.Warn(limitsMissing, "provider", entry.Name, "limits", missing.String())
	}
	if uid, own := hold.User(); own {
		opts.Groups.addUser(uid)
	}
	launch := func(number int) (instance, error) { return spawn(opts, entry, b, hold, number) }
	return &plan{entry: entry, path: path, binary: b, launch: launch}, nil
}

// attachPlan is of a provider that somebody else starts.
func attachPlan(opts Options, entry Entry) (*plan, error) {
	if err := checkAttach(entry.Attach); err != nil {
		return nil, fmt.Errorf("provider %q: %w", entry.Name, err)
	}
	opts.Log.Warn("a provider that runs in a debugger is attached: it is neither pinned nor confined", "provider", entry.Name, "socket", entry.Attach)
	launch := func(int) (instance, error) { return newAttached(opts, entry.Attach), nil }
	return &plan{entry: entry, path: entry.Attach, launch: launch}, nil
}

// locate finds the binary of an entry and verifies it; path is as it was found.
func locate(opts Options, entry Entry) (path string, b *binary, err error) {
	path, allowed := entry.Path, "a build of one's own"
	if path == "" {
		allowed = "--dev"
		found, err := Finder{Dirs: opts.Dirs}.FindVersion(entry.Provider, entry.Version)
		if err != nil {
			return "", nil, err
		}
		path = found.Path
	}
	real, err := inspect(path)
	if err != nil {
		return "", nil, err
	}
	if b, err = verify(real, entry.SHA256, receipts{opts.ReceiptDir, opts.Log}); err != nil {
		return "", nil, err
	}
	if entry.SHA256 == "" {
		opts.Log.Warn("a provider is started without a pin", "allowed_by", allowed, "provider", entry.Name, "path", path, "sha256", b.sha256)
	}
	return path, b, nil
}

// Start starts the provider and returns when it is ready. A handshake that fails
// and settings that are refused are errors, and close the Provider; a provider that
// says that its CA is away is started all the same and gets ready later. ctx bounds
// the start alone. It must be called once.
func (p *Provider) Start(ctx context.Context) error {
	p.begun.Do(func() { go p.run() })
	var err error
	select {
	case err = <-p.first:
	case <-p.closing: // by a Close beside it
		err = errClosing
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("provider %q: %w", p.name, err), p.Close())
	}
	return nil
}

// Close takes no new calls, waits for those in flight as long as
// [Options.StopTimeout] allows, and ends the process. It may be called twice and
// returns when nothing of the provider is left.
func (p *Provider) Close() error {
	p.close.Do(func() { close(p.closing) })
	p.begun.Do(func() {
		p.end()
		close(p.closed)
	})
	<-p.closed
	return nil
}

// Status returns what is known now.
func (p *Provider) Status() Status { return p.gate.read() }

// CSRSign implements [ca.Client].
func (p *Provider) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	return call(ctx, p.supervisor, func(ctx context.Context, i instance) (ca.Certificate, error) {
		cert, err := i.CSRSign(ctx, req)
		if err == nil {
			cert.Signer = signer(i) // of this life: the next may be another version
		}
		return cert, err
	})
}

// signer names a provider and its version.
func signer(i instance) string {
	var s Status
	i.Describe(&s)
	return strings.TrimSpace(s.Metadata.Name + " " + s.Metadata.Version)
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
	defer context.AfterFunc(l.leaving, cancel)()
	return l.WatchRoots(ctx, changed)
}

// over tells whether calls go to another life now, or soon will.
func (l *life) over() bool {
	// A stream can break a moment before its process is known to have ended.
	select {
	case <-l.leaving.Done():
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
			return none, ca.Errorf(ca.ReasonFor(err), "provider %q: %d calls are in flight, none ended in time", l.entry.Name, cap(l.slots))
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
