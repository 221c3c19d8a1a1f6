// Package httptransport makes an [http.RoundTripper] over a [secret.Source]: call
// [New] with the options of package tlsconfig, and give it to an [http.Client].
package httptransport

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// Transport is an http.Transport whose connections keep to the roots held now. Its
// methods may be called by any number of goroutines.
//
// A request in flight survives every rotation. A connection that is idle, or shared
// as HTTP/2's are, gets no further request once a root that was trusted when it was
// made has been dropped: its peer may be one that nobody trusts any more. The next
// request makes a new one. A new root, or a new certificate of one's own, closes
// nothing; connections made from then on use it.
type Transport struct {
	base     *http.Transport
	verifier *tlsconfig.Verifier

	mu    sync.Mutex
	conns *http.Transport // those made while each of roots was trusted
	roots *pki.Bundle
}

// idle is how long a connection is kept without a request, where base does not say.
const idle = 90 * time.Second

// New returns a transport with a configuration of [tlsconfig.Client]. base says all
// else, such as timeouts, and is not used itself; nil is HTTP/2 where the server has
// it, no proxy, and 10 s for a handshake. Connections are closed after 90 s without
// a request, or as base says.
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
		base = &http.Transport{ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second}
	}
	if dialsTLS(base) {
		return nil, errors.New("httptransport: base has a DialTLSContext or DialTLS of its own, which would not verify the server; set DialContext")
	}
	base = base.Clone()
	base.TLSClientConfig = cfg
	if base.IdleConnTimeout == 0 { // those that a dropped root has left behind must end
		base.IdleConnTimeout = idle
	}
	return &Transport{base: base, verifier: verifier, conns: base.Clone()}, nil
}

func dialsTLS(t *http.Transport) bool {
	return t.DialTLSContext != nil || t.DialTLS != nil //nolint:staticcheck // old ones are called all the same
}

// RoundTrip implements [http.RoundTripper], for https alone: a redirect leads to no
// server that is not verified. Where there are no roots it fails with a
// [*tlsconfig.Error], even if a connection is there.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	conns, err := t.trusted()
	if err == nil && req.URL.Scheme != "https" {
		err = fmt.Errorf("httptransport: the scheme %.256q is refused; https is right", req.URL.Scheme)
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as RoundTrip must; the error is the one to tell
		}
		return nil, err
	}
	return conns.RoundTrip(req)
}

// trusted returns the connections that a request may go out on.
func (t *Transport) trusted() (*http.Transport, error) {
	roots, err := t.verifier.Roots()
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

// dropped tells whether one of the roots is no longer there.
func dropped(before, now *pki.Bundle) bool {
	return before != now && slices.ContainsFunc(before.Certificates(), func(root *x509.Certificate) bool { return !now.Contains(root) })
}

// CloseIdleConnections closes connections that have no request; [http.Client] has a
// method of this name that calls it.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns.CloseIdleConnections()
}
