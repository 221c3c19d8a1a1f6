package kubeca

import (
	"net/http"
	"sync"

	"github.com/countersign-dev/countersign/sdk/provider"
)

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
func (c *connections) open(to access) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := c.held[to.mark]
	if shared == nil {
		shared = &connection{transport: newTransport(to)}
		c.held[to.mark] = shared
	}
	shared.users++
	client := &http.Client{Transport: shared.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &session{to, client, func() { c.close(to.mark) }}
}

func newTransport(to access) *http.Transport {
	t := provider.NewTransport(to.tls)
	t.ForceAttemptHTTP2 = true
	// Under load a connection is always in use: without pings, a dead one would be, too.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: callTimeout / 2, PingTimeout: callTimeout / 2}
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
