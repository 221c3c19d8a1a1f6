package kubeca

import (
	"net/http"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/token"
)

// pingTimeout is how long a connection may be silent, and then how long it has to answer.
const pingTimeout = 5 * time.Second

// connections are shared by calls that run at once, where the server and what verifies both
// sides are the same. None is kept when the last call ends, so that changed files count. It is
// safe for concurrent use.
type connections struct {
	mu   sync.Mutex
	held map[fingerprint]*connection
}

type connection struct {
	transport *http.Transport
	users     int
}

// open returns a session that the caller closes, once.
func (c *connections) open(to access) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := c.held[to.mark]
	if shared == nil {
		shared = &connection{transport: newTransport(to)}
	}
	client, err := to.client(shared.transport)
	if err != nil {
		return nil, err
	}
	c.held[to.mark] = shared
	shared.users++
	return &session{to, client, func() { c.close(to.mark) }}, nil
}

// client returns a client that calls by a transport. The error is [ca.Unavailable], as of all that
// is wrong with files.
func (to access) client(by http.RoundTripper) (*kubeapi.Client, error) {
	cfg := kubeapi.Config{URL: to.url.String(), Transport: by, UserAgent: managerName}
	if to.token != "" {
		cfg.Token = token.Static{Value: to.token}
	}
	client, err := kubeapi.New(cfg)
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "%w", err)
	}
	return client, nil
}

func newTransport(to access) *http.Transport {
	t := provider.NewTransport(to.tls)
	t.ForceAttemptHTTP2 = true
	// Under load a connection is always in use: without pings, a dead one would be, too.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingTimeout, PingTimeout: pingTimeout}
	return t
}

func (c *connections) close(mark fingerprint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := c.held[mark]
	if shared.users--; shared.users == 0 {
		delete(c.held, mark)
		shared.transport.CloseIdleConnections()
	}
}
