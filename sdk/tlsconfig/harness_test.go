package tlsconfig_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// party is one side: a source with "default" and "ROOTCA".
type party struct {
	*secrettest.Source
	t       *testing.T
	id      pki.Identity
	keyType pki.KeyType
}

func newParty(t *testing.T, authority *catest.CA, spiffeID string, dnsNames ...string) *party {
	t.Helper()
	id, err := pki.NewIdentity(spiffeID, dnsNames, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &party{secrettest.New(), t, id, pki.ECDSAP256}
	p.renew(authority)
	p.trust(authority.Bundle())
	return p
}

// renew gives the party a new key and certificate.
func (p *party) renew(authority *catest.CA) { p.Put(p.issue(authority)) }

func (p *party) issue(authority *catest.CA) *secret.Item {
	p.t.Helper()
	key, err := pki.GenerateKey(p.keyType)
	if err != nil {
		p.t.Fatal(err)
	}
	csr, err := pki.CreateCSR(key, p.id)
	if err != nil {
		p.t.Fatal(err)
	}
	reply, err := authority.CSRSign(context.Background(), ca.SignRequest{CSR: csr})
	if err != nil {
		p.t.Fatal(err)
	}
	pem, err := pki.EncodeKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	certs, err := pki.ParseCertificates(reply.Chain)
	if err != nil {
		p.t.Fatal(err)
	}
	return &secret.Item{
		Name: "default", Kind: secret.KeyPair, Version: pki.Fingerprint(certs[0])[:16], Chain: reply.Chain, Key: pem,
		Serial: certs[0].SerialNumber.Text(16),
	}
}

func (p *party) trust(roots *pki.Bundle) { p.Put(bundleItem(roots)) }

func bundleItem(roots *pki.Bundle) *secret.Item {
	version := "none"
	if roots.Len() > 0 {
		version = ""
		for _, print := range roots.Fingerprints() {
			version += print[:8]
		}
	}
	return &secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Version: version, Roots: roots.PEM()}
}

func (p *party) serial() string { return p.Items()["default"].Serial }

// options are those of mutual TLS with peers of example.org; change may change them.
func (p *party) options(change ...func(*tlsconfig.Options)) tlsconfig.Options {
	o := tlsconfig.Options{
		Source: p, Certificate: "default", Roots: "ROOTCA", Peer: tlsconfig.TrustDomain("example.org"), Sessions: 10,
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func peer(a tlsconfig.Authorizer) func(*tlsconfig.Options) {
	return func(o *tlsconfig.Options) { o.Peer = a }
}

func server(t *testing.T, o tlsconfig.Options) *tls.Config {
	t.Helper()
	cfg, err := tlsconfig.Server(o)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func client(t *testing.T, o tlsconfig.Options) *tls.Config {
	t.Helper()
	cfg, err := tlsconfig.Client(o)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ServerName = "web.example.org"
	return cfg
}

// pipe is a connection in memory with room for a flight each way: in a [net.Pipe] two
// who write at once would wait for each other.
func pipe(t *testing.T) (a, b net.Conn) {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	defer listener.Close()
	dialled := make(chan error, 1)
	go func() {
		var err error
		b, err = listener.Dial()
		dialled <- err
	}()
	a, err := listener.Accept()
	if err := errors.Join(err, <-dialled); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// meeting is how one handshake ended.
type meeting struct {
	server, client       tls.ConnectionState // as each side sees the connection
	serverErr, clientErr error
}

func (m meeting) err() error { return errors.Join(m.serverErr, m.clientErr) }

// meet has the two shake hands, and the client wait for the server's word, with which
// its ticket comes.
func meet(t *testing.T, serverConfig, clientConfig *tls.Config) (m meeting) {
	t.Helper()
	a, b := pipe(t)
	deadline := time.Now().Add(2 * time.Minute)
	_, _ = a.SetDeadline(deadline), b.SetDeadline(deadline)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn := tls.Server(a, serverConfig)
		if m.serverErr = conn.Handshake(); m.serverErr == nil {
			_, m.serverErr = conn.Write([]byte("hello"))
		}
		m.server = conn.ConnectionState()
		a.Close()
	}()
	conn := tls.Client(b, clientConfig)
	if m.clientErr = conn.Handshake(); m.clientErr == nil {
		_, m.clientErr = io.ReadFull(conn, make([]byte, 5))
	}
	m.client = conn.ConnectionState()
	b.Close()
	<-done
	return m
}

func (m meeting) serials() (server, client string) {
	if len(m.client.PeerCertificates) > 0 {
		server = m.client.PeerCertificates[0].SerialNumber.Text(16)
	}
	if len(m.server.PeerCertificates) > 0 {
		client = m.server.PeerCertificates[0].SerialNumber.Text(16)
	}
	return server, client
}
