// Package selfsigned makes the certificates by which a host and a provider process know each other
// on a socket: a [Pair] for each end and start, and a TLS configuration that accepts one
// certificate and no other ([Pair.Accept]). No state, and no goroutine but that of [Ahead] until its
// pair is made; all is safe for concurrent use.
package selfsigned

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"time"
)

// Pair is a P-256 key and its self-signed certificate, for one start of one process.
type Pair struct {
	CertPEM []byte
	KeyPEM  []byte // PKCS #8
	TLS     tls.Certificate
}

// New makes a pair.
func New() (*Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "localhost"},
		DNSNames:     []string{"localhost"},
		NotBefore:    time.Now().Add(-time.Hour),
		// Longer than any process runs: both ends trust exactly this certificate and
		// forget it with the process.
		NotAfter:              time.Now().AddDate(30, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true, // a go-plugin peer puts it into a pool of roots
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &Pair{
		CertPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
		TLS:     tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
	}, nil
}

// Ahead makes a pair in the background. The first call of the function that it returns waits for that
// pair; each later one makes another.
func Ahead() (next func() (*Pair, error)) {
	first := make(chan func() (*Pair, error), 1)
	go func() {
		pair, err := New()
		first <- func() (*Pair, error) { return pair, err }
		close(first)
	}()
	return func() (*Pair, error) {
		if made, ok := <-first; ok {
			return made()
		}
		return New()
	}
}

// Cert returns the certificate (DER).
func (p *Pair) Cert() []byte { return p.TLS.Certificate[0] }

// Accept returns a TLS configuration, for a client or a server, that presents the pair and accepts
// only the certificate peer (DER).
func (p *Pair) Accept(peer []byte) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{p.TLS},
		ClientAuth:   tls.RequireAnyClientCert,
		// Chain and name do not matter: the certificate is known byte for byte, and the
		// handshake proves possession of the key.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection below is stricter
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 || !bytes.Equal(cs.PeerCertificates[0].Raw, peer) {
				return errors.New("the peer at the provider's socket presented an unexpected certificate")
			}
			return nil
		},
	}
}
