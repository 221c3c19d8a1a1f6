package citadelca

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func TestServerIsVerifiedByName(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		host, serverName string
		certificate      []string
		works            bool
	}{
		"localhost-is-istiod":       {"localhost", "", []string{localName}, true},
		"localhost-is-not-itself":   {"localhost", "", []string{"localhost"}, false},
		"the-host-of-the-address":   {"127.0.0.1", "", []string{"127.0.0.1"}, true},
		"another-host":              {"127.0.0.1", "", []string{localName}, false},
		"the-name-that-is-set":      {"127.0.0.1", "ca.example.org", []string{"ca.example.org"}, true},
		"set-for-localhost-too":     {"localhost", "ca.example.org", []string{"ca.example.org"}, true},
		"not-the-name-that-is-set":  {"127.0.0.1", "ca.example.org", []string{"127.0.0.1"}, false},
		"one-of-several-of-a-chart": {"localhost", "", []string{"istio-pilot.istio-system.svc", localName}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t)
			server.present(pairOf(t, server.tls, "", test.certificate...))
			settings := server.settings(t)
			_, port, _ := net.SplitHostPort(server.address)
			settings.Address, settings.ServerName = net.JoinHostPort(test.host, port), test.serverName
			c := mustOpen(t, settings)
			if test.works {
				mustSign(t, c)
				return
			}
			req, _ := ask(t, theToken)
			_, err := c.CSRSign(t.Context(), req)
			mustBe(t, err, ca.ErrUnavailable, "x509", c.endpoint.address)
		})
	}
}

func TestChangedRootNeedsNoRestart(t *testing.T) {
	t.Parallel()
	server := start(t)
	settings := server.settings(t)
	c := mustOpen(t, settings)
	mustSign(t, c)

	// The server's root is another from now on, and the file follows.
	server.tls.Rotate()
	server.present(pairOf(t, server.tls, "", localName))
	req, check := ask(t, theToken)
	_, err := c.CSRSign(t.Context(), req)
	mustBe(t, err, ca.ErrUnavailable, "certificate signed by unknown authority")
	write(t, settings.RootFile, server.tls.Bundle().PEM())
	reply, err := c.CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Passes(t, reply, check)

	// So is the mesh's, which the reply contains.
	server.mesh.Rotate()
	if chain := mustSign(t, c); !server.mesh.Bundle().Contains(chain.Root) {
		t.Error("the old root was returned")
	}
}

func TestUnreadableRootsAreNamedUntilReadable(t *testing.T) {
	t.Parallel()
	server := start(t)
	settings := server.settings(t)
	settings.RootFile = filepath.Join(t.TempDir(), "root-cert.pem")
	c := mustOpen(t, settings)
	mustFail(t, c, ca.ErrUnavailable, "root_file: ", settings.RootFile, "no such file")
	write(t, settings.RootFile, []byte("hello"))
	mustFail(t, c, ca.ErrUnavailable, "root_file: ", settings.RootFile, "no PEM block")
	write(t, settings.RootFile, make([]byte, 1<<20+1))
	mustFail(t, c, ca.ErrUnavailable, "root_file: ", settings.RootFile, "more than 1048576 bytes")
	write(t, settings.RootFile, server.tls.Bundle().PEM())
	mustSign(t, c)
	settings.RootFile = t.TempDir()
	mustFail(t, mustOpen(t, settings), ca.ErrUnavailable, settings.RootFile+" is not a regular file")
	if calls := server.calls(); len(calls) != 1 {
		t.Errorf("there were %d calls", len(calls))
	}
}

func TestSystemRootsAreTheOperatingSystems(t *testing.T) {
	t.Parallel()
	server := start(t)
	settings := server.settings(t)
	settings.RootFile = SystemRoots
	c := mustOpen(t, settings)
	req, _ := ask(t, theToken)
	_, err := c.CSRSign(t.Context(), req)
	mustBe(t, err, ca.ErrUnavailable, "x509")
	server.present(pairOf(t, systemCA, "", localName))
	mustSign(t, c)
}

// clientFiles are settings with a client certificate of the mesh's, in a folder as
// PROV_CERT is.
func clientFiles(t *testing.T, server *istiod, log *testkit.Log) Settings {
	t.Helper()
	settings, dir := server.settings(t), t.TempDir()
	settings.ClientCertFile, settings.ClientKeyFile = filepath.Join(dir, "cert-chain.pem"), filepath.Join(dir, "key.pem")
	settings.Log = log.Logger()
	writePair(t, settings, server.mesh)
	return settings
}

func writePair(t *testing.T, settings Settings, authority *catest.CA) {
	t.Helper()
	chain, key := pemOf(t, authority, webID)
	write(t, settings.ClientCertFile, chain)
	write(t, settings.ClientKeyFile, key)
}

func TestClientCertificateIsReadAtEachHandshake(t *testing.T) {
	t.Parallel()
	server, log := start(t), &testkit.Log{}
	settings := clientFiles(t, server, log)
	c := mustOpen(t, settings)
	var serials []string
	for range 2 {
		mustSign(t, c)
		call := server.last(t)
		if call.client == nil || call.client.URIs[0].String() != webID {
			t.Fatalf("the client certificate is %v", call.client)
		}
		if call.metadata["authorization"] == nil {
			t.Error("the token was left out")
		}
		serials = append(serials, call.client.SerialNumber.String())
		writePair(t, settings, server.mesh)
	}
	if serials[0] == serials[1] {
		t.Error("the changed certificate was not shown")
	}
	if text := log.Take(); text != "" {
		t.Errorf("logged %s", text)
	}
}

func TestUnusableClientCertificateKeepsToken(t *testing.T) {
	t.Parallel()
	server, log := start(t), &testkit.Log{}
	settings := clientFiles(t, server, log)
	c := mustOpen(t, settings)
	expired, expiredKey := pemOf(t, catest.NewCA(catest.Options{TTL: -time.Second}), webID)
	_, otherKey := pemOf(t, server.mesh, webID)
	chain, key := pemOf(t, server.mesh, webID)
	for _, test := range []struct {
		says       string
		chain, key []byte
	}{
		{"expired at 20", expired, expiredKey},
		{"key.pem is not the key of", chain, otherKey},
		{"cert-chain.pem: it holds no PEM block", []byte("hello"), key},
		{"key.pem: ", chain, []byte("hello")},
		{"key.pem: no such file", chain, nil},
		{"cert-chain.pem: no such file", nil, key},
	} {
		for path, content := range map[string][]byte{settings.ClientCertFile: test.chain, settings.ClientKeyFile: test.key} {
			os.Remove(path)
			if content != nil {
				write(t, path, content)
			}
		}
		mustSign(t, c)
		call := server.last(t)
		if call.client != nil || call.metadata["authorization"] == nil {
			t.Errorf("%s: client certificate %v, token %t", test.says, call.client, call.metadata["authorization"] != nil)
		}
		text := log.Take()
		if !strings.Contains(text, test.says) || !strings.Contains(text, "level=WARN") || strings.Count(text, "\n") != 1 {
			t.Errorf("logged %q, want a warning with %q", text, test.says)
		}
		if strings.Contains(text, "PRIVATE") || strings.Contains(text, theToken.Reveal()) {
			t.Errorf("logged a key or a token: %s", text)
		}
	}
	writePair(t, settings, server.mesh)
	mustSign(t, c)
	if server.last(t).client == nil {
		t.Error("the certificate that can be used again is not shown")
	}
}

func TestClientCertificateIncludesIntermediates(t *testing.T) {
	t.Parallel()
	// The server has only the root, the client's chain leads there.
	server, log := start(t), &testkit.Log{}
	chain, key := pemOf(t, server.mesh, webID)
	if n := strings.Count(string(chain), "BEGIN"); n != 2 {
		t.Fatalf("the chain has %d certificates", n)
	}
	settings := server.settings(t)
	settings.ClientCertFile, settings.ClientKeyFile, settings.Log = fileOf(t, chain), fileOf(t, key), log.Logger()
	mustSign(t, mustOpen(t, settings))
	if server.last(t).client == nil {
		t.Error("none was shown")
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	server := start(t)
	pair := server.pair
	listener := tls.NewListener(listen(t, "127.0.0.1:0"), &tls.Config{Certificates: []tls.Certificate{pair}, MaxVersion: tls.VersionTLS11}) //nolint:gosec // on purpose
	go accept(listener, func(conn net.Conn) { _ = conn.(*tls.Conn).Handshake(); conn.Close() })
	settings := server.settings(t)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	settings.Address = "localhost:" + port
	req, _ := ask(t, theToken)
	_, err := mustOpen(t, settings).CSRSign(t.Context(), req)
	mustBe(t, err, ca.ErrUnavailable, "protocol version")
}

// accept hands each connection to f, one after the other, until the listener ends.
func accept(listener net.Listener, f func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		f(conn)
	}
}
