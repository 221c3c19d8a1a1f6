package kubetest

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// FakeServer is a [Fake] on loopback, over TLS.
type FakeServer struct {
	*Fake
	URL string

	server *httptest.Server
	open   atomic.Int32
}

// Listen serves until the test ends.
func (f *Fake) Listen(tb testing.TB) *FakeServer {
	tb.Helper()
	s := &FakeServer{Fake: f, server: httptest.NewUnstartedServer(f)}
	s.server.Config.ConnState = s.connection
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that a test cuts
	s.server.StartTLS()
	s.URL = s.server.URL
	tb.Cleanup(func() {
		f.Fail(errCut)
		s.server.Close()
	})
	return s
}

func (s *FakeServer) connection(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.open.Add(-1)
		s.end()
	}
}

// Open counts the connections.
func (s *FakeServer) Open() int { return int(s.open.Load()) }

// Root is its certificate, PEM.
func (s *FakeServer) Root() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
}

// Config reaches the server.
func (s *FakeServer) Config() *rest.Config {
	return &rest.Config{Host: s.URL, BearerToken: s.Token, TLSClientConfig: rest.TLSClientConfig{CAData: s.Root()}}
}

// Kubeconfig reaches the server; a mark makes its bytes others.
func (s *FakeServer) Kubeconfig(mark string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: %q}}]
# %s
`, s.URL, base64.StdEncoding.EncodeToString(s.Root()), s.Token, mark)
}
