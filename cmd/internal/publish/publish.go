// Package publish serves the SPIFFE bundle endpoint of a program: [Listen] takes the address of
// publish_bundle when the program starts, [Endpoint.Show] begins to answer.
package publish

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/internal/strangers"
	"github.com/countersign-dev/countersign/sdk/authn/federation"
)

// The limits of the endpoint, which any client may reach.
const (
	mostReaders      = 256
	mostReadersOfOne = 32
	readerLife       = time.Minute
)

// Endpoint is a bundle endpoint. A nil one is off: its methods do nothing.
type Endpoint struct {
	page        *operatorpage.Page
	certificate operatorpage.Certificate
	publisher   *federation.Publisher
}

// Listen takes the address; without one it returns nil. The profile and the URL of p are those of c, and its
// log is log.
// Handshakes succeed once Show was called.
func Listen(c config.Published, p federation.Publication, log *slog.Logger) (*Endpoint, error) {
	if c.Address == "" {
		return nil, nil
	}
	p.Profile, p.URL, p.Log = c.Profile, c.URL, log
	publisher, err := federation.NewPublisher(p)
	if err != nil {
		return nil, fmt.Errorf("publish_bundle: %w", err)
	}
	listener, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("publish_bundle.address: %w", err)
	}
	e := &Endpoint{publisher: publisher}
	e.page = operatorpage.Serve(e.certificate.Listen(bounded(listener)), "bundle endpoint", log)
	return e, nil
}

// Show serves the bundle, with the certificate of cfg.
func (e *Endpoint) Show(cfg *tls.Config) {
	if e == nil {
		return
	}
	if e.publisher.Profile == federation.SPIFFE {
		cfg = identified(cfg, e.publisher.Log)
	}
	e.certificate.Take(cfg)
	e.page.Show(e.publisher)
}

// identified logs each certificate that clients refuse: with the profile https_spiffe, they verify an
// X.509-SVID (SPIFFE Federation, section 5.2.2).
func identified(cfg *tls.Config, log *slog.Logger) *tls.Config {
	cfg = cfg.Clone()
	var last atomic.Pointer[x509.Certificate]
	get := cfg.GetCertificate
	cfg.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, err := get(hello)
		if err != nil || last.Swap(cert.Leaf) == cert.Leaf {
			return cert, err
		}
		if _, err := x509svid.IDFromCert(cert.Leaf); err != nil {
			log.Error("clients of the bundle endpoint refuse its certificate: with publish_bundle.profile https_spiffe it must have a SPIFFE ID", "error", err)
		}
		return cert, nil
	}
	return cfg
}

// Close ends the connections.
func (e *Endpoint) Close() error {
	if e == nil {
		return nil
	}
	return e.page.Close()
}

// bounded limits the readers. There are more places than readers, as a connection that gives way to another
// still has its place then.
func bounded(listener net.Listener) net.Listener {
	return &strangers.Listener{
		Listener: listener, Places: strangers.NewPlaces(2*mostReaders, 2*mostReadersOfOne),
		Unknown: strangers.NewUnknown(mostReaders, mostReadersOfOne, readerLife), Full: func(net.Conn, error) {},
	}
}
