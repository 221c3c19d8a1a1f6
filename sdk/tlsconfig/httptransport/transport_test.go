package httptransport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
	"github.com/countersign-dev/countersign/sdk/tlsconfig/httptransport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trust gives a source these roots.
func trust(d *secrettest.Source, roots ...*pki.Bundle) {
	var all *pki.Bundle
	for _, r := range roots {
		all = all.Union(r)
	}
	if all.Len() == 0 {
		d.Empty("ROOTCA")
	} else {
		d.Put(&secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Version: strings.Join(all.Fingerprints(), ""), Roots: all.PEM()})
	}
}

// renew gives it a certificate for localhost.
func renew(d *secrettest.Source, authority *catest.CA) {
	chain, key := authority.Pair(0, "spiffe://example.org/web", "localhost")
	d.Put(&secret.Item{Name: "default", Kind: secret.KeyPair, Version: string(chain), Chain: chain, Key: key})
}

// scene is a server and a client of one authority.
type scene struct {
	t         *testing.T
	authority *catest.CA
	web, app  *secrettest.Source
	client    *http.Client
	url       string

	mu    sync.Mutex
	conns map[string]bool // those that requests came on, by the client's address
	hold  chan struct{}   // what a request for /slow waits for
	slow  chan struct{}   // gets a value when one has begun
}

func newScene(t *testing.T, base *http.Transport) *scene {
	t.Helper()
	s := &scene{
		t: t, authority: catest.NewCA(catest.Options{}), web: secrettest.New(), app: secrettest.New(),
		conns: map[string]bool{}, hold: make(chan struct{}), slow: make(chan struct{}, 1),
	}
	for _, d := range []*secrettest.Source{s.web, s.app} {
		renew(d, s.authority)
		trust(d, s.authority.Bundle())
	}
	cfg, err := tlsconfig.Server(s.options(s.web))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	server.TLS = cfg
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	s.url = "https://localhost:" + port
	transport, err := httptransport.New(s.options(s.app), base)
	if err != nil {
		t.Fatal(err)
	}
	s.client = &http.Client{Transport: transport, Timeout: 2 * time.Minute}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

func (s *scene) options(d *secrettest.Source) tlsconfig.Options {
	o := tlsconfig.Options{Source: d, Certificate: "default", Roots: "ROOTCA", Peer: tlsconfig.SPIFFEID("spiffe://example.org/web")}
	if d == s.app {
		o.Peer = tlsconfig.ServerName()
	}
	return o
}

// ServeHTTP remembers the connection, and has /slow wait.
func (s *scene) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.conns[r.RemoteAddr] = true
	s.mu.Unlock()
	if r.URL.Path == "/slow" {
		s.slow <- struct{}{}
		<-s.hold
	}
	_, _ = io.WriteString(w, r.Proto)
}

func (s *scene) get(path string) (body string, serial string, err error) {
	answer, err := s.client.Get(s.url + path)
	if err != nil {
		return "", "", err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	return string(content), answer.TLS.PeerCertificates[0].SerialNumber.String(), err
}

func (s *scene) post(url string, body io.Reader) error {
	answer, err := s.client.Post(url, "text/plain", body)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

func (s *scene) must(path string) (serial string) {
	s.t.Helper()
	_, serial, err := s.get(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return serial
}

func (s *scene) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

var protocols = map[string]*http.Transport{"HTTP/2.0": nil, "HTTP/1.1": {}}

func TestOnlyDroppedRootClosesItsConnections(t *testing.T) {
	for protocol, base := range protocols {
		t.Run(protocol, func(t *testing.T) {
			s := newScene(t, base)
			body, first, err := s.get("/")
			if err != nil || body != protocol {
				t.Fatalf("%s, %v", body, err)
			}
			other := catest.NewCA(catest.Options{}).Bundle()
			trust(s.app, s.authority.Bundle(), other)
			renew(s.web, s.authority)
			if serial := s.must("/"); serial != first || s.connections() != 1 {
				t.Errorf("%d connections: a root more and a new certificate opened another", s.connections())
			}
			trust(s.app, s.authority.Bundle())
			if serial := s.must("/"); serial == first || s.connections() != 2 {
				t.Errorf("%d connections: a dropped root is a reason for another", s.connections())
			}
		})
	}
}

// Roots of federated trust domains count as those of Options.Roots.
func TestDroppedFederatedRootClosesItsConnections(t *testing.T) {
	s := newScene(t, nil)
	s.app.Put(&secret.Item{Name: "own", Kind: secret.TrustBundle, Version: "1", Roots: catest.NewCA(catest.Options{}).Bundle().PEM()})
	o := s.options(s.app)
	o.Roots, o.Federated = "own", map[string]string{"example.org": "ROOTCA"}
	transport, err := httptransport.New(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.client.Transport = transport
	for i, step := range []struct {
		roots []*pki.Bundle
		want  int // connections
	}{
		{[]*pki.Bundle{s.authority.Bundle()}, 1},
		{[]*pki.Bundle{s.authority.Bundle(), catest.NewCA(catest.Options{}).Bundle()}, 1},
		{[]*pki.Bundle{s.authority.Bundle()}, 2},
	} {
		trust(s.app, step.roots...)
		if s.must("/"); s.connections() != step.want {
			t.Errorf("step %d: %d connections, want %d", i, s.connections(), step.want)
		}
	}
	s.app.Forget("ROOTCA")
	if _, _, err := s.get("/"); !errors.Is(err, tlsconfig.ErrRootsGone) {
		t.Errorf("the federation has ended: %v", err)
	}
}

func TestRequestInFlightSurvivesDroppedRoot(t *testing.T) {
	for protocol, base := range protocols {
		t.Run(protocol, func(t *testing.T) {
			s := newScene(t, base)
			answered := make(chan error, 1)
			go func() {
				_, _, err := s.get("/slow")
				answered <- err
			}()
			<-s.slow
			s.authority.Rotate()
			for _, d := range []*secrettest.Source{s.web, s.app} {
				renew(d, s.authority)
				trust(d, s.authority.Bundle())
			}
			s.must("/")
			if s.connections() != 2 {
				t.Errorf("%d connections, want another beside that in flight", s.connections())
			}
			close(s.hold)
			if err := <-answered; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNothingIsSentWithoutRoots(t *testing.T) {
	s := newScene(t, nil)
	s.must("/")
	trust(s.app)
	body := &closing{Reader: strings.NewReader("x")}
	err := s.post(s.url, body)
	if _, typed := errors.AsType[*tlsconfig.Error](err); !typed || !errors.Is(err, tlsconfig.ErrRootsGone) || !body.closed {
		t.Errorf("got %v; the body is closed: %v", err, body.closed)
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestServerUnderOtherRootIsRefused(t *testing.T) {
	s := newScene(t, nil)
	trust(s.app, catest.NewCA(catest.Options{}).Bundle())
	if _, _, err := s.get("/"); !errors.Is(err, tlsconfig.ErrUntrusted) {
		t.Errorf("got %v", err)
	}
}

func TestPlaintextIsRefused(t *testing.T) {
	s := newScene(t, nil)
	if err := s.post(strings.Replace(s.url, "https", "http", 1), nil); err == nil || !strings.Contains(err.Error(), "https is right") {
		t.Errorf("got %v", err)
	}
}

func TestBaseTransportWithOwnTLSDialIsRefused(t *testing.T) {
	base := &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return &tls.Conn{}, nil }}
	s := newScene(t, nil)
	if _, err := httptransport.New(s.options(s.app), base); err == nil || !strings.Contains(err.Error(), "DialTLSContext") {
		t.Errorf("got %v", err)
	}
}
