package spiresecret

import (
	"context"
	"errors"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Authority is a Workload API as one of the authorities of a [secret.Manager], so that
// another can sign while it is away, and its X.509-SVIDs are kept over a restart. Its trust
// bundle is the authority's roots.
//
// Away means that an X.509-SVID is overdue, or that none was ever sent: a Workload API that
// comes and goes in the meantime changes nothing. One that answers without an X.509-SVID
// for this agent has refused, and is not away.
type Authority struct {
	source *Source
	roots  string
}

var (
	_ secret.Giver   = (*Authority)(nil)
	_ ca.RootWatcher = (*Authority)(nil)
)

// NewAuthority is [New] for an Authority. A key pair in config.Secrets has the name of the
// Manager's secret, which must name its SPIFFE ID; the only trust bundle is the roots'.
// The Manager reports events and failures; config.Observe is not used.
func NewAuthority(config Config) (*Authority, error) {
	config.Observe = nil
	a := &Authority{}
	for _, spec := range config.Secrets {
		switch {
		case spec.Kind == secret.TrustBundle && a.roots != "":
			return nil, errors.New("spiresecret: an authority has one trust bundle")
		case spec.Kind == secret.TrustBundle:
			a.roots = spec.Name
		case spec.SPIFFEID == "":
			return nil, errors.New("spiresecret: a key pair of an authority needs a SPIFFE ID")
		}
	}
	if a.roots == "" {
		return nil, errors.New("spiresecret: an authority needs its trust bundle")
	}
	var err error
	a.source, err = open(config, true)
	return a, err
}

// Close ends the stream and the notices.
func (a *Authority) Close() error { return a.source.Close() }

// CSRSign implements [ca.Client]. The Workload API makes the keys itself.
func (a *Authority) CSRSign(context.Context, ca.SignRequest) (ca.Certificate, error) {
	return ca.Certificate{}, ca.Errorf(ca.Unimplemented, "the Workload API signs no requests")
}

// Give implements [secret.Giver].
func (a *Authority) Give(ctx context.Context, name string) (pair *secret.Item, roots []byte, err error) {
	select {
	case <-a.source.answered:
	case <-ctx.Done():
		return nil, nil, ca.Errorf(ca.Deadline, "the Workload API: %w", context.Cause(ctx))
	}
	pair, why := a.source.newest(name)
	bundle, err := a.source.newest(a.roots)
	switch {
	case pair == nil:
		return nil, nil, why
	case bundle == nil:
		return nil, nil, err
	}
	lent := *pair
	lent.RenewAt = overdue(pair)
	return &lent, bundle.Roots, why
}

// overdue returns when the successor is late: SPIRE's agent renews up to a tenth of the half
// life, or 10 minutes, after the usual time. The life counts from when it came, as authorities
// backdate certificates.
func overdue(pair *secret.Item) time.Time {
	usual := renewalOf(clock.Later(pair.NotBefore, pair.Issued), pair.NotAfter)
	return usual.Add(pair.NotAfter.Sub(usual) / 4)
}

// newest returns what is held and still valid, and why no newer one may come.
func (s *Source) newest(name string) (*secret.Item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byName[name]
	switch {
	case s.closed:
		return nil, ca.Errorf(ca.Unavailable, "the connection to the Workload API is closed")
	case e == nil:
		return nil, ca.Errorf(ca.NotConfigured, "the Workload API is not asked for it")
	case e.held != nil && !e.held.Expired(s.config.Now()):
		return e.held, e.err
	case e.err == nil:
		return nil, ca.Errorf(ca.Unavailable, "what the Workload API sent last has expired")
	}
	return nil, e.err
}

// WatchRoots implements [ca.RootWatcher].
func (a *Authority) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	told := ""
	return a.source.follow(ctx, []string{a.roots}, func() error {
		item, _ := a.source.newest(a.roots)
		if item == nil || item.Version == told {
			return nil
		}
		told = item.Version
		return changed(item.Roots)
	})
}

// Notify calls f after each new key pair, until the Authority is closed: f has the Manager
// take it by [secret.Manager.Kick]. It calls f in one goroutine of its own.
func (a *Authority) Notify(f func()) {
	var names []string
	for _, e := range a.source.entries {
		if e.spec.Kind == secret.KeyPair {
			names = append(names, e.spec.Name)
		}
	}
	a.source.notices.Go(func() {
		_ = a.source.follow(a.source.ctx, names, func() error { f(); return nil }) // it ends with the source
	})
}

// Revocations is [Source.Revocations].
func (a *Authority) Revocations(ctx context.Context, take func(lists []byte, err error)) {
	a.source.Revocations(ctx, take)
}

// follow calls look at first and after each change of the names, until it fails or ctx ends.
func (s *Source) follow(ctx context.Context, names []string, look func() error) error {
	changed := make(chan struct{}, 1)
	for _, name := range names {
		stop, err := s.Watch(secret.Caller{}, name, func(string) {
			select {
			case changed <- struct{}{}:
			default: // a notice is pending
			}
		})
		if err != nil {
			return ca.Errorf(ca.Unavailable, "%v", err)
		}
		defer stop()
	}
	for {
		if err := look(); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
