package process

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

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Pair is a P-256 key and its self-signed certificate, for one start of one process.
type Pair struct {
	cert    []byte // DER
	CertPEM []byte
	keyPEM  []byte
	TLS     tls.Certificate
}

// NewPair makes a pair.
func NewPair() (*Pair, error) {
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
		IsCA:                  true, // stock plugin.Serve puts it into a pool of roots
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
		cert:    der,
		CertPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
		TLS:     tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
	}, nil
}

// pinned returns a TLS configuration that presents ours and accepts only the certificate
// peer (DER).
func pinned(ours *Pair, peer []byte) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{ours.TLS},
		// Chain and name do not matter: the certificate is known byte for byte, and the
		// handshake proves possession of the key.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection below is stricter
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 || !bytes.Equal(cs.PeerCertificates[0].Raw, peer) {
				return errors.New("the process at the provider's socket presented an unexpected certificate")
			}
			return nil
		},
	}
}

// StartData makes a provider serve with the pair and accept the host's.
func (p *Pair) StartData(host *Pair) wire.StartData {
	return wire.StartData{ServerCert: string(p.CertPEM), ServerKey: string(p.keyPEM), ClientCert: string(host.CertPEM)}
}
