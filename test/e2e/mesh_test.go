package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	service "github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// The files of a mesh: a listener with TLS, its routes, two clusters.
var (
	//go:embed mesh/listener.yaml
	listenerFile string
	//go:embed mesh/routes.yaml
	routesFile string
	//go:embed mesh/clusters.yaml
	clustersFile string
)

// mesh is a discovery service for whoever shows a certificate of its root: what is in a
// folder, and secrets out of memory.
type mesh struct {
	dir     string // the files
	keys    string // chain.pem, key.pem and roots.pem of a client
	root    *authority
	secrets *shelf
	address string

	folder *folder.Folder
	server *service.Server
	end    context.CancelFunc
	ended  chan error
}

func startMesh(t *testing.T) *mesh {
	t.Helper()
	m := &mesh{dir: proctest.Folder(t), keys: proctest.Folder(t), root: newAuthority(t, "root of the mesh"), secrets: newShelf(t), address: "127.0.0.1:0"}
	m.root.writeClient(t, m.keys, "/ns/e2e/sa/envoy")
	m.write(t, "listener.yaml", listenerFile)
	m.write(t, "routes.yaml", routesFile)
	m.write(t, "clusters.yaml", clustersFile)
	return m
}

// write puts a file into the folder at once.
func (m *mesh) write(t *testing.T, name, text string) {
	t.Helper()
	writeWhole(t, filepath.Join(m.dir, name), []byte(text))
}

func (m *mesh) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(m.dir, name)); err != nil {
		t.Fatal(err)
	}
}

// start serves, the first time or again at the same address.
func (m *mesh) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", m.address)
	if err != nil {
		t.Fatal(err)
	}
	m.address = listener.Addr().String()
	if m.folder, err = folder.New(folder.Config{Path: m.dir}); err != nil {
		t.Fatal(err)
	}
	roots := pki.NewBundle(m.root.Cert)
	m.server, err = service.New(service.Config{
		Types: append(m.folder.Types(), service.Type{URL: secretType, Source: m.secrets}),
		Authenticator: authn.Certificates{Roots: func(domain string) *pki.Bundle {
			if domain != trustDomain {
				return nil
			}
			return roots
		}},
		TLS:   m.root.serverTLS(t),
		Times: service.Times{Drain: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- m.folder.Run(ctx) }()
	go func() { ended <- m.server.Run(ctx, service.Listeners{TLS: listener}) }()
	m.end, m.ended = end, ended
	t.Cleanup(func() { m.stop(t) })
}

// stop may be called again.
func (m *mesh) stop(t *testing.T) {
	t.Helper()
	if m.end == nil {
		return
	}
	m.end()
	m.end = nil
	for range cap(m.ended) {
		if err := <-m.ended; err != nil {
			t.Error(err)
		}
	}
}

// status returns what the service knows of one type, whichever stream that is on.
func (m *mesh) status(url string) service.TypeStatus {
	return typeOf(m.server.Status(), url)
}

// envoy starts an Envoy that has all of this service.
func (m *mesh) envoy(t *testing.T, api apiType) *envoy {
	t.Helper()
	return startADSEnvoy(t, m.address, m.keys, api)
}

func (a *authority) serverTLS(t *testing.T) *tls.Config {
	t.Helper()
	pair, err := tls.X509KeyPair(a.leaf(t, &x509.Certificate{DNSNames: []string{"localhost"}}))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

// writeClient writes what a client of the trust domain needs into files.
func (a *authority) writeClient(t *testing.T, dir, path string) {
	t.Helper()
	chain, key := a.leaf(t, &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: trustDomain, Path: path}}})
	for name, content := range map[string][]byte{"chain.pem": chain, "key.pem": key, "roots.pem": a.PEM()} {
		writeWhole(t, filepath.Join(dir, name), content)
	}
}
