package agent

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// hung is a storage that ignores its context and does not answer.
type hung struct{ over chan struct{} }

func (h hung) Load(context.Context, string) (secret.Record, error) {
	<-h.over
	return secret.Record{}, nil
}

func (h hung) Store(context.Context, string, secret.Record) error {
	<-h.over
	return nil
}

func TestStorageThatHangsKeepsNoBundleBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := hung{make(chan struct{})}
		defer close(storage.over)
		b := newBundleNumber(storage, "example.org", slog.New(slog.DiscardHandler))
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			began := time.Now()
			if _, _, err := b.Last(ctx); err != nil {
				t.Error(err)
			}
			if err := b.Store(ctx, 1, "digest"); err == nil {
				t.Error("stored")
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the calls took %s", took)
			}
			cancel()
		}
	})
}

// The roots of another trust domain are not published under the name of the one before.
func TestTrustDomainOfPublishedBundleNeedsARestart(t *testing.T) {
	before := config.Config{PublishBundle: config.PublishBundle{Address: ":8443"}}
	before.TrustDomain = "example.org"
	after := before
	after.TrustDomain = "other.example"
	if err := (&reloader{start: &start{c: before}}).needsRestart(after); err == nil {
		t.Error("no error")
	}
	before.PublishBundle = config.PublishBundle{}
	if err := (&reloader{start: &start{c: before}}).needsRestart(after); err != nil {
		t.Error(err)
	}
}

// connections is a listener that accepts those that a test makes.
type connections struct {
	net.Listener
	next net.Conn
}

func (c *connections) Accept() (net.Conn, error) {
	next := c.next
	c.next = nil
	if next == nil {
		return nil, net.ErrClosed
	}
	return next, nil
}

// from is a connection from an address.
type from struct {
	net.Conn
	net.TCPAddr
}

func (f from) RemoteAddr() net.Addr { return &f.TCPAddr }

// A client with several addresses could hold all places of readers.
func TestReadersOfAFewAddressesKeepNoOtherOut(t *testing.T) {
	c := &connections{}
	listener := bounded(c)
	accepts := func(address byte) bool {
		client, server := net.Pipe()
		t.Cleanup(func() { _ = client.Close() })
		c.next = from{server, net.TCPAddr{IP: net.IPv4(192, 0, 2, address), Port: 1}}
		conn, err := listener.Accept()
		if err != nil {
			return false
		}
		t.Cleanup(func() { _ = conn.Close() })
		return true
	}
	for n := range mostReaders {
		if !accepts(byte(n / mostReadersOfOne)) {
			t.Fatalf("connection %d is refused", n)
		}
	}
	if accepts(0) || !accepts(100) {
		t.Error("a new address has no place, or one of the others has more than its own")
	}
}
