package provider

import (
	"context"
	"io"
	"sync"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Provider returns a new, unconfigured instance as a host sees it: [Definition.Serve] serves
// one, and a host can use one without a process.
//
// It is an [io.Closer]: Close ends its watches, waits for its calls and closes the authority.
// Later calls return [ca.ErrUnavailable].
func (d *Definition) Provider() wire.Provider { return d.newInstance() }

func (d *Definition) newInstance() *instance {
	return &instance{definition: d, configuring: make(chan struct{}, 1), stopping: make(chan struct{})}
}

// instance is a definition with its current settings.
type instance struct {
	definition *Definition

	// configuring is held by the Configure in progress. It is not a mutex, so that waiting
	// ends with a caller's context while the author's code runs.
	configuring chan struct{}

	mu       sync.Mutex
	current  *configured // nil before the first
	closed   bool
	stopping chan struct{} // closed by Close
}

// Stopping is closed when the instance is: its server ends the stream of calls, after their answers.
func (i *instance) Stopping() <-chan struct{} { return i.stopping }

// configured is a client and its calls in flight.
type configured struct {
	client ca.Client
	calls  sync.WaitGroup
	// replaced ends watches, which the host opens again.
	replaced context.Context
	replace  context.CancelFunc
}

var (
	errNotConfigured = ca.Errorf(ca.NotConfigured, "the provider is not configured yet")
	errClosed        = ca.Errorf(ca.Unavailable, "the provider is stopping")
)

// use returns the current client for one call. The caller must call calls.Done after it.
func (i *instance) use() (*configured, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.closed:
		return nil, errClosed
	case i.current == nil:
		return nil, errNotConfigured
	}
	i.current.calls.Add(1)
	return i.current, nil
}

// Metadata implements [wire.Provider].
func (i *instance) Metadata(context.Context) (wire.Metadata, error) { return i.definition.metadata() }

// Validate implements [wire.Provider].
func (i *instance) Validate(_ context.Context, settings map[string]any) ([]wire.Diagnostic, error) {
	return i.definition.check(settings), nil
}

// ValidateOnline implements [wire.Provider].
func (i *instance) ValidateOnline(ctx context.Context, settings map[string]any) ([]wire.Diagnostic, error) {
	return i.definition.ask(ctx, settings)
}

// Configure implements [wire.Provider]. It opens the new client first, and closes the old one
// when its calls have ended.
func (i *instance) Configure(ctx context.Context, settings map[string]any) error {
	select {
	case i.configuring <- struct{}{}:
		defer func() { <-i.configuring }()
	case <-ctx.Done():
		return ctx.Err()
	}
	client, err := i.definition.open(ctx, settings)
	if err != nil {
		return err
	}
	next := &configured{client: client}
	next.replaced, next.replace = context.WithCancel(context.Background())
	old, err := i.install(next)
	if err != nil {
		next.close()
		return err
	}
	if old != nil {
		go old.close() // ends with the last call in flight
	}
	return nil
}

// install makes next current and returns its predecessor.
func (i *instance) install(next *configured) (old *configured, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil, errClosed
	}
	old, i.current = i.current, next
	return old, nil
}

// close is called when no new call can use c.
func (c *configured) close() {
	c.replace()
	c.calls.Wait()
	if closer, ok := c.client.(io.Closer); ok {
		_ = closer.Close() // the host is gone
	}
}

// Close implements [io.Closer].
func (i *instance) Close() error {
	i.mu.Lock()
	old := i.current
	if !i.closed {
		close(i.stopping)
	}
	i.current, i.closed = nil, true
	i.mu.Unlock()
	if old != nil {
		old.close()
	}
	return nil
}

// Ready implements [wire.Provider]: a client that open returned is ready.
func (i *instance) Ready(context.Context) error {
	c, err := i.use()
	if err != nil {
		return err
	}
	c.calls.Done()
	return nil
}

// CSRSign implements [ca.Client].
func (i *instance) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	c, err := i.use()
	if err != nil {
		return ca.Certificate{}, err
	}
	defer c.calls.Done()
	return c.client.CSRSign(ctx, req)
}

// callAbility makes a call of an ability, if the client has it.
func callAbility[A, R any](i *instance, ability wire.Ability, call func(c *configured, client A) (R, error)) (none R, err error) {
	c, err := i.use()
	if err != nil {
		return none, err
	}
	defer c.calls.Done()
	client, ok := c.client.(A)
	if !ok {
		return none, ca.Errorf(ca.Unimplemented, "the provider lacks the ability %q", ability)
	}
	return call(c, client)
}

// watchAbility runs a watch of an ability, if the client has it.
func watchAbility[A any](ctx context.Context, i *instance, ability wire.Ability, watch func(ctx context.Context, client A) error) error {
	_, err := callAbility(i, ability, func(c *configured, client A) (any, error) {
		return nil, c.watch(ctx, func(ctx context.Context) error { return watch(ctx, client) })
	})
	return err
}

// watch ends a watch when other settings take the client's place.
func (c *configured) watch(ctx context.Context, watch func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.replaced, cancel)()
	err := watch(ctx)
	if c.replaced.Err() != nil {
		return ca.Errorf(ca.Unavailable, "the settings changed or the provider is stopping: watch again")
	}
	return err
}

// Roots implements [ca.RootSource].
func (i *instance) Roots(ctx context.Context) ([]byte, error) {
	return callAbility(i, wire.RootSource, func(_ *configured, c ca.RootSource) ([]byte, error) { return c.Roots(ctx) })
}

// WatchRoots implements [ca.RootWatcher].
func (i *instance) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	return watchAbility(ctx, i, wire.RootWatcher, func(ctx context.Context, c ca.RootWatcher) error { return c.WatchRoots(ctx, changed) })
}

// ExchangeToken implements [ca.TokenExchanger].
func (i *instance) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	return callAbility(i, wire.TokenExchanger, func(_ *configured, c ca.TokenExchanger) (ca.ExchangedToken, error) { return c.ExchangeToken(ctx, req) })
}

// CertifiesNames implements [ca.NameCertifier].
func (i *instance) CertifiesNames(ctx context.Context) error {
	_, err := callAbility(i, wire.NamesFromRequest, func(_ *configured, c ca.NameCertifier) (any, error) { return nil, c.CertifiesNames(ctx) })
	return err
}

// RenewalInfo implements [ca.RenewalAdvisor].
func (i *instance) RenewalInfo(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	return callAbility(i, wire.RenewalInfo, func(_ *configured, c ca.RenewalAdvisor) (ca.RenewalInfo, error) { return c.RenewalInfo(ctx, leaf) })
}

// Revocations implements [ca.RevocationSource].
func (i *instance) Revocations(ctx context.Context) ([]byte, error) {
	return callAbility(i, wire.RevocationSource, func(_ *configured, c ca.RevocationSource) ([]byte, error) { return c.Revocations(ctx) })
}

// SignJWT implements [ca.JWTSigner].
func (i *instance) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	return callAbility(i, wire.JWTSVID, func(_ *configured, c ca.JWTSigner) (ca.Token, error) { return c.SignJWT(ctx, req) })
}

// WatchJWTKeys implements [ca.JWTSigner].
func (i *instance) WatchJWTKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return watchAbility(ctx, i, wire.JWTSVID, func(ctx context.Context, c ca.JWTSigner) error { return c.WatchJWTKeys(ctx, changed) })
}

// SignWIT implements [ca.WITSigner].
func (i *instance) SignWIT(ctx context.Context, req ca.WITRequest) (ca.Token, error) {
	return callAbility(i, wire.WITSVID, func(_ *configured, c ca.WITSigner) (ca.Token, error) { return c.SignWIT(ctx, req) })
}

// WatchWITKeys implements [ca.WITSigner].
func (i *instance) WatchWITKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return watchAbility(ctx, i, wire.WITSVID, func(ctx context.Context, c ca.WITSigner) error { return c.WatchWITKeys(ctx, changed) })
}
