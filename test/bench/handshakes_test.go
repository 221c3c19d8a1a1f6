package bench

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	spiffetls "github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

const (
	handshakeRuns = 15
	// inRun is how many handshakes a kind has in its turn.
	inRun = 300
	// strangers are more than a server of ours remembers.
	strangers = 1500
)

// sides are the configurations of a server and of the clients that come in turn.
type sides struct {
	name    string
	server  *tls.Config
	clients []*tls.Config
}

// measureTLS measures full handshakes, mutual TLS 1.3 with P-256, one after the other.
// The kinds take turns.
func measureTLS() error {
	p, err := newParties()
	if err != nil {
		return err
	}
	defer p.held.Close()
	known, err := p.known()
	if err != nil {
		return err
	}
	unknown, err := p.unknown()
	if err != nil {
		return err
	}
	fmt.Println("\n| full handshakes, mutual TLS 1.3, P-256, both sides on the same cores | per second | of crypto/tls |\n|---|---|---|")
	return errors.Join(compareSides(known), compareSides(unknown), p.getCertificate())
}

func compareSides(kinds []sides) error {
	rates := make([][]float64, len(kinds))
	ratios := make([][]float64, len(kinds))
	for run := range handshakeRuns {
		for i, kind := range kinds {
			rate, err := kind.rate(run)
			if err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			rates[i] = append(rates[i], rate)
			ratios[i] = append(ratios[i], rate/rates[0][run])
		}
	}
	for i, kind := range kinds {
		fmt.Printf("| %s | %.0f | %.3f |\n", kind.name, mid(rates[i]), mid(ratios[i]))
	}
	return nil
}

func mid(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// rate is how many handshakes there are in a second.
func (s sides) rate(run int) (float64, error) {
	listener, err := tls.Listen("tcp", "127.0.0.1:0", s.server)
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	go accept(listener)
	begin := time.Now()
	for i := range inRun {
		if err := s.shake(listener.Addr().String(), s.clients[(run*inRun+i)%len(s.clients)]); err != nil {
			return 0, err
		}
	}
	return inRun / time.Since(begin).Seconds(), nil
}

// shake returns when the server has taken the client, too.
func (s sides) shake(address string, cfg *tls.Config) error {
	conn, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	return err
}

func accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = conn.Write([]byte{1})
		}()
	}
}

// parties are what the configurations are made of.
type parties struct {
	authority *catest.CA
	held      *secret.Manager
	cert      tls.Certificate
	roots     *x509.CertPool
}

func (p *parties) options() tlsconfig.Options {
	return tlsconfig.Options{Source: p.held, Certificate: "default", Roots: "ROOTCA", Peer: tlsconfig.TrustDomain("example.org")}
}

func (p *parties) fixedServer() *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{p.cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: p.roots, MinVersion: tls.VersionTLS13,
	}
}

func (p *parties) fixedClient(cert tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: p.roots, ServerName: "web.example.org", MinVersion: tls.VersionTLS13}
}

// known: the same two meet again and again.
func (p *parties) known() ([]sides, error) {
	server, err := tlsconfig.Server(p.options())
	if err != nil {
		return nil, err
	}
	client, err := tlsconfig.Client(p.options())
	if err != nil {
		return nil, err
	}
	domain := spiffeid.RequireTrustDomainFromString("example.org")
	svid, err := x509svid.ParseRaw(slices.Concat(p.cert.Certificate...), p.keyDER())
	if err != nil {
		return nil, err
	}
	bundle := x509bundle.FromX509Authorities(domain, p.authority.Bundle().Certificates())
	member := spiffetls.AuthorizeMemberOf(domain)
	return []sides{
		{"crypto/tls with a fixed certificate", p.fixedServer(), []*tls.Config{p.fixedClient(p.cert)}},
		{"sdk/tlsconfig", server, []*tls.Config{client}},
		{"go-spiffe's tlsconfig", spiffetls.MTLSServerConfig(svid, bundle, member), []*tls.Config{spiffetls.MTLSClientConfig(svid, bundle, member)}},
	}, nil
}

// unknown: the server sees another client each time; the clients are the same for
// both servers.
func (p *parties) unknown() ([]sides, error) {
	server, err := tlsconfig.Server(p.options())
	if err != nil {
		return nil, err
	}
	clients := make([]*tls.Config, strangers)
	for i := range clients {
		cert, err := issue(p.authority)
		if err != nil {
			return nil, err
		}
		clients[i] = p.fixedClient(cert)
	}
	return []sides{
		{"1,500 clients in turn, server of crypto/tls", p.fixedServer(), clients},
		{"1,500 clients in turn, server of sdk/tlsconfig", server, clients},
	}, nil
}

func (p *parties) getCertificate() error {
	server, err := tlsconfig.Server(p.options())
	if err != nil {
		return err
	}
	hello := &tls.ClientHelloInfo{}
	const times = 1_000_000
	begin := time.Now()
	for range times {
		if _, err := server.GetCertificate(hello); err != nil {
			return err
		}
	}
	each := time.Since(begin) / times
	allocations := testing.AllocsPerRun(1000, func() { _, _ = server.GetCertificate(hello) })
	fmt.Printf("\n`GetCertificate` of what is held: %d ns, %.0f allocations\n", each.Nanoseconds(), allocations)
	return nil
}
