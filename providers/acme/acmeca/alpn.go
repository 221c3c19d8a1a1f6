package acmeca

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// protocol is that of tls-alpn-01, and proofExtension has its proof (RFC 8737, section 3).
const protocol = "acme-tls/1"

var proofExtension = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 31}

// alpnAnswers answers tls-alpn-01 at a port.
type alpnAnswers struct {
	*port
	certs table[*tls.Certificate]
}

func newALPN(address string, log *slog.Logger) *alpnAnswers {
	a := &alpnAnswers{port: newPort(address, log)}
	a.serve = func(l net.Listener) {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			wg.Go(func() { a.greet(ctx, conn) })
		}
		cancel() // the handshake of an unknown client delays no other
		wg.Wait()
	}
	return a
}

// greet makes a handshake, which has all that the CA looks at. The connection has a deadline.
func (a *alpnAnswers) greet(ctx context.Context, conn net.Conn) {
	secure := tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{protocol}, GetCertificate: a.certificate})
	_ = secure.HandshakeContext(ctx) // strangers' faults
	_ = secure.Close()
}

func (a *alpnAnswers) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if found, ok := a.certs.last(strings.ToLower(hello.ServerName)); ok && slices.Contains(hello.SupportedProtos, protocol) {
		return found, nil
	}
	return nil, errors.New("nothing is proved for this name now")
}

func (a *alpnAnswers) present(ctx context.Context, c challenge) (func(context.Context) error, error) {
	certificate, err := c.certificate(time.Now())
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "tls-alpn-01: %w", err)
	}
	if err := a.use(ctx); err != nil {
		return nil, err
	}
	at := serverName(c.name)
	a.certs.add(at, certificate)
	return func(context.Context) error {
		a.certs.remove(at, func(one *tls.Certificate) bool { return one == certificate })
		a.leave()
		return nil
	}, nil
}

func (*alpnAnswers) settle(context.Context) error { return nil }

// certificate is self-signed, has the name, and the digest of the proof in an extension.
func (c challenge) certificate(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(c.proof))
	digest, err := asn1.Marshal(sum[:])
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ACME challenge"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		ExtraExtensions: []pkix.Extension{{Id: proofExtension, Critical: true, Value: digest}},
	}
	if c.name.Type == ipAddress {
		template.IPAddresses = []net.IP{net.ParseIP(c.name.Value)}
	} else {
		template.DNSNames = []string{c.name.Value}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// serverName is what the CA asks for: the name, or the reverse mapping of an IP address (RFC
// 8738, section 6).
func serverName(n name) string {
	ip, err := netip.ParseAddr(n.Value)
	if n.Type != ipAddress || err != nil {
		return strings.ToLower(n.Value)
	}
	bytes := ip.AsSlice()
	slices.Reverse(bytes)
	var labels strings.Builder
	for _, b := range bytes {
		if ip.Is4() {
			fmt.Fprintf(&labels, "%d.", b)
		} else {
			fmt.Fprintf(&labels, "%x.%x.", b&15, b>>4)
		}
	}
	if ip.Is4() {
		return labels.String() + "in-addr.arpa"
	}
	return labels.String() + "ip6.arpa"
}
