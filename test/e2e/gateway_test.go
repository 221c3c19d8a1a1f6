package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"syscall"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

const shopCert, shopRoots = "kubernetes-gateway://shop/web", "kubernetes-gateway://shop/web-cacert"

func TestIngressGatewayKeepsSecretsWithoutDiscovery(t *testing.T) {
	byEachAPI(t, keepsItsSecrets)
}

func keepsItsSecrets(t *testing.T, api apiType) {
	needEnvoy(t)
	folder := proctest.Folder(t)
	agents := writeCA(t, folder, "root of the agents")
	service, rootPEM := startDiscovery(t, agents)
	root := filepath.Join(folder, "discovery.pem")
	writeWhole(t, root, rootPEM)
	shop := newAuthority(t, "root of the shop")
	service.put(t, &tlsv3.Secret{Name: shopRoots, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
		TrustedCa: inlineBytes(shop.PEM()),
	}}})
	first, second, third := shop.secret(t, shopCert, "/first"), shop.secret(t, shopCert, "/second"), shop.secret(t, shopCert, "/third")
	service.put(t, first)
	a := startAgent(t, agentConfig{first: folder, gateway: map[string]any{"address": service.address, "root_file": root, "node_id": "e2e"}})
	e := startEnvoyWith(t, a.socket, api, shopCert, shopRoots)
	client := shop.client(t)

	address := e.address(t)
	awaitShown(t, client, address, first)
	service.put(t, second)
	awaitShown(t, client, address, second)

	// A hostile service does not have Envoy read this machine's files.
	hostile := shop.secret(t, shopCert, "/hostile")
	hostile.GetTlsCertificate().PrivateKey = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "/etc/hostname"}}
	service.put(t, hostile)
	poll(t, "the agent to refuse a file's name", func() bool {
		return a.metric(t, "countersign_gateway_events_total", `event="refused"`) > 0
	})
	awaitShown(t, client, address, second)

	service.stop()
	poll(t, "the agent to notice that the service is gone", func() bool { return a.metric(t, "countersign_gateway_connected") == 0 })
	for range 20 {
		awaitShown(t, client, address, second)
	}
	e.stop(t, syscall.SIGTERM)
	e = startEnvoyWith(t, a.socket, api, shopCert, shopRoots)
	address = e.address(t)
	awaitShown(t, client, address, second)

	service.put(t, third)
	service.start(t)
	awaitShown(t, client, address, third)
	if held := a.metric(t, "countersign_gateway_names", `state="held"`); held != 2 {
		t.Errorf("%v names are held, want 2", held)
	}
	// The agent's own names are not for this socket, nor are they shown by it.
	if page := getPage(t, a.status, "/"); !bytes.Contains([]byte(page), []byte(shopRoots)) || bytes.Contains([]byte(page), []byte("PRIVATE KEY")) {
		t.Error("the page does not name the gateway's secrets")
	}
}

// client returns what the gateway's clients dial with: a certificate of the same root.
func (a *authority) client(t *testing.T) *tls.Config {
	t.Helper()
	s := a.secret(t, "client", "/client").GetTlsCertificate()
	pair, err := tls.X509KeyPair(s.GetCertificateChain().GetInlineBytes(), s.GetPrivateKey().GetInlineBytes())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, // its certificate has no name of a host
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots})
			return err
		},
	}
}

// awaitShown makes requests until the gateway shows the certificate; each must go well.
func awaitShown(t *testing.T, client *tls.Config, address string, want *tlsv3.Secret) {
	t.Helper()
	block, _ := pem.Decode(want.GetTlsCertificate().GetCertificateChain().GetInlineBytes())
	dialer := &tls.Dialer{Config: client}
	poll(t, "the gateway to show its certificate", func() bool {
		shown, err := askForPage(t.Context(), dialer, address)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Equal(shown.Raw, block.Bytes)
	})
}
