// Package httptransport makes an [http.RoundTripper] from a [secret.Source]. Call [New]
// with the options of package tlsconfig and pass the result to an [http.Client].
package httptransport

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/transport"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// Transport is an http.Transport whose connections honor the current roots. It is safe for
// concurrent use; a lock guards its connection pool.
//
// A request in flight survives every rotation. Once a root has been dropped that was
// trusted when a connection was made, the connection gets no further request, even if it
// is shared, as in HTTP/2: its peer may no longer be trusted. The next request makes a new
// connection. A new root, or a new certificate of one's own, closes nothing; it applies to
// later connections.
type Transport struct {
	base     *http.Transport
	verifier *tlsconfig.Verifier
	domains  []string // of Options.Federated

	mu    sync.Mutex
	conns *http.Transport // made while each of roots was trusted
	roots []*pki.Bundle   // of Options.Roots, and of each domain
}

// idle is the idle timeout if base sets none.
const idle = 90 * time.Second

// New returns a transport that uses [tlsconfig.Client]. base supplies all other settings,
// such as timeouts, and is not used itself. A nil base means HTTP/2 if the server has it,
// no proxy, 5 s to connect, 10 s for a handshake and 64 KiB for a reply's header. Idle
// connections close after 90 s, or as set in base.
func New(o tlsconfig.Options, base *http.Transport) (*Transport, error) {
	cfg, err := tlsconfig.Client(o)
	if err != nil {
		return nil, err
	}
	verifier, err := tlsconfig.NewVerifier(o)
	if err != nil {
		return nil, err
	}
	if base == nil {
		base = transport.Outward(nil)
		base.ForceAttemptHTTP2, base.DisableCompression, base.Proxy, base.IdleConnTimeout = true, false, nil, idle
	}
	if dialsTLS(base) {
		return nil, errors.New("httptransport: base has a DialTLSContext or DialTLS of its own, which would not verify the server; set DialContext")
	}
	base = base.Clone()
	base.TLSClientConfig = cfg
	if base.IdleConnTimeout == 0 { // connections left behind by a dropped root must end
		base.IdleConnTimeout = idle
	}
	domains := slices.Sorted(maps.Keys(o.Federated))
	return &Transport{base: base, verifier: verifier, domains: domains, conns: base.Clone(), roots: make([]*pki.Bundle, 1+len(domains))}, nil
}

func dialsTLS(t *http.Transport) bool {
	return t.DialTLSContext != nil || t.DialTLS != nil //nolint:staticcheck // the deprecated one is called as well
}

// RoundTrip implements [http.RoundTripper] for https only, so no redirect leads to an
// unverified server. Without roots it returns a [*tlsconfig.Error], even if a connection
// exists.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	conns, err := t.trusted()
	if err == nil && req.URL.Scheme != "https" {
		err = fmt.Errorf("httptransport: the scheme %.256q is refused; https is right", req.URL.Scheme)
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // RoundTrip must close the body; its own error matters more
		}
		return nil, err
	}
	return conns.RoundTrip(req)
}

// trusted returns the pool of connections that a request may use.
func (t *Transport) trusted() (*http.Transport, error) {
	roots, err := t.now()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if dropped(t.roots, roots) {
		t.conns.CloseIdleConnections() // those with a request in flight end after it
		t.conns = t.base.Clone()
	}
	t.roots = roots
	return t.conns, nil
}

// now returns the current roots. A federated trust domain may have none; its servers are then refused.
func (t *Transport) now() ([]*pki.Bundle, error) {
	own, err := t.verifier.Roots()
	if err != nil {
		return nil, err
	}
	all := []*pki.Bundle{own}
	for _, domain := range t.domains {
		federated, _ := t.verifier.FederatedRoots(domain) // nil with an error
		all = append(all, federated)
	}
	return all, nil
}

// dropped reports whether a root of before is missing from the same bundle now.
func dropped(before, now []*pki.Bundle) bool {
	for i := range before {
		missing := func(root *x509.Certificate) bool { return !now[i].Contains(root) }
		if before[i] != now[i] && slices.ContainsFunc(before[i].Certificates(), missing) {
			return true
		}
	}
	return false
}

// CloseIdleConnections closes idle connections; the method of this name of [http.Client]
// calls it.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns.CloseIdleConnections()
}
