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

// Roots implements [ca.RootSource].
func (i *instance) Roots(ctx context.Context) ([]byte, error) {
	c, err := i.use()
	if err != nil {
		return nil, err
	}
	defer c.calls.Done()
	source, ok := c.client.(ca.RootSource)
	if !ok {
		return nil, missing(wire.RootSource)
	}
	return source.Roots(ctx)
}

// WatchRoots implements [ca.RootWatcher].
func (i *instance) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	c, err := i.use()
	if err != nil {
		return err
	}
	defer c.calls.Done()
	watcher, ok := c.client.(ca.RootWatcher)
	if !ok {
		return missing(wire.RootWatcher)
	}
	return c.watch(ctx, func(ctx context.Context) error { return watcher.WatchRoots(ctx, changed) })
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

// ExchangeToken implements [ca.TokenExchanger].
func (i *instance) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	c, err := i.use()
	if err != nil {
		return ca.ExchangedToken{}, err
	}
	defer c.calls.Done()
	exchanger, ok := c.client.(ca.TokenExchanger)
	if !ok {
		return ca.ExchangedToken{}, missing(wire.TokenExchanger)
	}
	return exchanger.ExchangeToken(ctx, req)
}

// CertifiesNames implements [ca.NameCertifier].
func (i *instance) CertifiesNames(ctx context.Context) error {
	c, err := i.use()
	if err != nil {
		return err
	}
	defer c.calls.Done()
	certifier, ok := c.client.(ca.NameCertifier)
	if !ok {
		return missing(wire.NamesFromRequest)
	}
	return certifier.CertifiesNames(ctx)
}

// RenewalInfo implements [ca.RenewalAdvisor].
func (i *instance) RenewalInfo(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	c, err := i.use()
	if err != nil {
		return ca.RenewalInfo{}, err
	}
	defer c.calls.Done()
	advisor, ok := c.client.(ca.RenewalAdvisor)
	if !ok {
		return ca.RenewalInfo{}, missing(wire.RenewalInfo)
	}
	return advisor.RenewalInfo(ctx, leaf)
}

// Revocations implements [ca.RevocationSource].
func (i *instance) Revocations(ctx context.Context) ([]byte, error) {
	c, err := i.use()
	if err != nil {
		return nil, err
	}
	defer c.calls.Done()
	source, ok := c.client.(ca.RevocationSource)
	if !ok {
		return nil, missing(wire.RevocationSource)
	}
	return source.Revocations(ctx)
}

// SignJWT implements [ca.JWTSigner].
func (i *instance) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	c, err := i.use()
	if err != nil {
		return "", err
	}
	defer c.calls.Done()
	signer, ok := c.client.(ca.JWTSigner)
	if !ok {
		return "", missing(wire.JWTSVID)
	}
	return signer.SignJWT(ctx, req)
}

// WatchJWTKeys implements [ca.JWTSigner].
func (i *instance) WatchJWTKeys(ctx context.Context, changed func(jwks []byte) error) error {
	c, err := i.use()
	if err != nil {
		return err
	}
	defer c.calls.Done()
	signer, ok := c.client.(ca.JWTSigner)
	if !ok {
		return missing(wire.JWTSVID)
	}
	return c.watch(ctx, func(ctx context.Context) error { return signer.WatchJWTKeys(ctx, changed) })
}

// SignWIT implements [ca.WITSigner].
func (i *instance) SignWIT(ctx context.Context, req ca.WITRequest) (ca.Token, error) {
	c, err := i.use()
	if err != nil {
		return "", err
	}
	defer c.calls.Done()
	signer, ok := c.client.(ca.WITSigner)
	if !ok {
		return "", missing(wire.WITSVID)
	}
	return signer.SignWIT(ctx, req)
}

// WatchWITKeys implements [ca.WITSigner].
func (i *instance) WatchWITKeys(ctx context.Context, changed func(jwks []byte) error) error {
	c, err := i.use()
	if err != nil {
		return err
	}
	defer c.calls.Done()
	signer, ok := c.client.(ca.WITSigner)
	if !ok {
		return missing(wire.WITSVID)
	}
	return c.watch(ctx, func(ctx context.Context) error { return signer.WatchWITKeys(ctx, changed) })
}

func missing(ability wire.Ability) error {
	return ca.Errorf(ca.Unimplemented, "the provider lacks the ability %q", ability)
}
