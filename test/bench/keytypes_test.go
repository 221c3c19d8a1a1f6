package bench

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"

	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// keyTypes are those of a root and of the leaves of both sides; the key exchange is
// X25519MLKEM768 unless it is classical.
var keyTypes = []struct {
	root, leaf pki.KeyType
	classical  bool
}{
	{pki.ECDSAP256, pki.ECDSAP256, true},
	{pki.ECDSAP256, pki.ECDSAP256, false},
	{pki.ECDSAP384, pki.ECDSAP384, false},
	{pki.RSA2048, pki.RSA2048, false},
	{pki.Ed25519, pki.Ed25519, false},
	{pki.MLDSA65, pki.ECDSAP256, false},
	{pki.MLDSA44, pki.MLDSA44, false},
	{pki.MLDSA65, pki.MLDSA44, false},
	{pki.MLDSA65, pki.MLDSA65, false},
	{pki.MLDSA87, pki.MLDSA87, false},
}

// measureKeyTypes measures full handshakes of sdk/tlsconfig, as measureTLS does.
func measureKeyTypes() error {
	kinds := make([]sides, len(keyTypes))
	sizes := make([]string, len(keyTypes))
	for i, k := range keyTypes {
		p, err := newPartiesOf(k.root, k.leaf)
		if err != nil {
			return fmt.Errorf("%s: %w", k.leaf, err)
		}
		defer p.held.Close()
		if kinds[i], err = p.ours(k.classical); err == nil {
			sizes[i], err = p.sizes(kinds[i], k.leaf)
		}
		if err != nil {
			return fmt.Errorf("%s below %s: %w", k.leaf, k.root, err)
		}
	}
	rates, err := ratesOf(kinds)
	if err != nil {
		return err
	}
	fmt.Println("\n| full handshakes, mutual TLS 1.3, both sides on the same cores: leaves, root, key exchange | per second | bytes that the client sends | the server | leaf, bytes | CSR |\n|---|---|---|---|---|---|")
	for i, k := range keyTypes {
		exchange := "X25519MLKEM768"
		if k.classical {
			exchange = "X25519"
		}
		fmt.Printf("| %s, %s, %s | %.0f | %s |\n", k.leaf, k.root, exchange, mid(rates[i]), sizes[i])
	}
	return nil
}

// ours are a server and a client of sdk/tlsconfig.
func (p *parties) ours(classical bool) (sides, error) {
	server, err := tlsconfig.Server(p.options())
	if err != nil {
		return sides{}, err
	}
	client, err := tlsconfig.Client(p.options())
	if err != nil {
		return sides{}, err
	}
	if classical {
		client.CurvePreferences = []tls.CurveID{tls.X25519}
	}
	return sides{"sdk/tlsconfig", server, []*tls.Config{client}}, nil
}

// ratesOf has the kinds take turns.
func ratesOf(kinds []sides) ([][]float64, error) {
	rates := make([][]float64, len(kinds))
	for run := range handshakeRuns {
		for i, kind := range kinds {
			rate, err := kind.rate(run)
			if err != nil {
				return nil, err
			}
			rates[i] = append(rates[i], rate)
		}
	}
	return rates, nil
}

// sizes are what one handshake sends, with the server's ticket, and what the CA gets and gives.
func (p *parties) sizes(s sides, leaf pki.KeyType) (string, error) {
	sent, received, err := s.traffic()
	if err != nil {
		return "", err
	}
	id, err := identity()
	if err != nil {
		return "", err
	}
	key, err := pki.GenerateKey(leaf)
	if err != nil {
		return "", err
	}
	csr, err := pki.CreateCSR(key, id)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(csr)
	return fmt.Sprintf("%d | %d | %d | %d", sent, received, len(p.cert.Certificate[0]), len(block.Bytes)), nil
}

// counted is a client's connection that counts.
type counted struct {
	net.Conn
	sent, received int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received += n
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent += n
	return n, err
}

// traffic is what one handshake sends in each direction, up to the server's first byte.
func (s sides) traffic() (sent, received int, err error) {
	listener, err := tls.Listen("tcp", "127.0.0.1:0", s.server)
	if err != nil {
		return 0, 0, err
	}
	defer listener.Close()
	go accept(listener)
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return 0, 0, err
	}
	wire := &counted{Conn: conn}
	defer wire.Close()
	client := tls.Client(wire, s.clients[0])
	_, readErr := client.Read(make([]byte, 1))
	return wire.sent, wire.received, errors.Join(client.Handshake(), readErr)
}
