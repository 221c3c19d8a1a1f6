package publish

import (
	"crypto/tls"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/logtest"
)

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

// https_spiffe is the default, and a certificate from files may be any.
func TestCertificateThatClientsRefuseIsLoggedOnce(t *testing.T) {
	ca := certtest.Root(t)
	web, svid := certtest.Leaf(t, time.Hour), certtest.Leaf(t, time.Hour)
	web.URIs, svid.URIs = nil, []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: "/server"}}
	var log logtest.Log
	current := &tls.Certificate{}
	cfg := identified(&tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current, nil }}, log.Logger())
	shows := func(leaf *certtest.Pair) {
		t.Helper()
		current = &tls.Certificate{Leaf: leaf.Cert}
		for range 2 {
			if got, err := cfg.GetCertificate(nil); got != current || err != nil {
				t.Error(got, err)
			}
		}
	}
	for _, logged := range []int{1, 2} {
		shows(ca.Issue(t, web))
		shows(ca.Issue(t, svid))
		if n := strings.Count(log.String(), "must have a SPIFFE ID"); n != logged {
			t.Errorf("logged %d times, not %d:\n%s", n, logged, &log)
		}
	}
}
