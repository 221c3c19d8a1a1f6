// Package publish serves the SPIFFE bundle endpoint of a program: [Listen] takes the address of
// publish_bundle when the program starts, [Endpoint.Show] begins to answer.
package publish

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

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
	if e != nil {
		e.certificate.Take(cfg)
		e.page.Show(e.publisher)
	}
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
