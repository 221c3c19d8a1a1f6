package endpoint

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// A cluster's roots rotate under a running agent.
func TestReplacedRootsApplyToNextRequest(t *testing.T) {
	before, after := certtest.Loopback(t), certtest.Loopback(t)
	var serves atomic.Pointer[tls.Certificate]
	serves.Store(before.TLS())
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
	server.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return serves.Load(), nil }}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	// httptest's own certificate is taken where a client names no host: drop it.
	server.TLS.Certificates = nil

	roots := filepath.Join(t.TempDir(), "roots.pem")
	write := func(certs ...*certtest.Pair) {
		var text []byte
		for _, cert := range certs {
			text = append(text, cert.PEM()...)
		}
		if err := os.WriteFile(roots, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client := New(Options{RootFile: roots, KeepAlive: true})
	defer client.Close()
	mustAnswer := func(want bool) {
		t.Helper()
		if _, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil); (err == nil) != want {
			t.Errorf("answered: %v; want %v", err, want)
		}
	}
	write(before)
	mustAnswer(true)
	serves.Store(after.TLS())
	mustAnswer(true) // on the connection that is there
	write(after)
	mustAnswer(true)
	write(before)
	mustAnswer(false)
	write()
	mustAnswer(false)
}

// startTLS returns a server that asks for a client certificate, and the file of its root.
func startTLS(t *testing.T, handle http.HandlerFunc) (server *httptest.Server, roots string) {
	t.Helper()
	server = httptest.NewUnstartedServer(handle)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, fileOf(t, pki.EncodeCertificates([]*x509.Certificate{server.Certificate()}))
}

func TestConnectionIsReusedOnlyWithKeepAlive(t *testing.T) {
	for kept, want := range map[bool]int{false: 2, true: 1} {
		seen := map[string]bool{}
		server, roots := startTLS(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RemoteAddr) })
		client := New(Options{RootFile: roots, KeepAlive: kept})
		for range 2 {
			reply, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			seen[string(reply.Body)] = true
		}
		if len(seen) != want {
			t.Errorf("kept %v: %d connections for two requests, want %d", kept, len(seen), want)
		}
		client.Close()
	}
}

// Otherwise the old roots, and the peers they admit, stay as long as the connection.
func TestChangedRootsOrCloseEndConnection(t *testing.T) {
	closed := make(chan struct{}, 9)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.StartTLS()
	defer server.Close()
	root := pki.EncodeCertificates([]*x509.Certificate{server.Certificate()})
	roots := fileOf(t, root)
	client := New(Options{RootFile: roots, KeepAlive: true})
	for _, end := range []func(){
		func() {
			if err := os.WriteFile(roots, append(root, root...), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil); err != nil {
				t.Fatal(err)
			}
		},
		client.Close,
	} {
		if _, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil); err != nil {
			t.Fatal(err)
		}
		end()
		select {
		case <-closed:
		case <-time.After(2 * time.Minute):
			t.Fatal("the connection is still there")
		}
	}
}

func TestClientCertificateIsReadPerConnection(t *testing.T) {
	server, roots := startTLS(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(200 + len(r.TLS.PeerCertificates)) })
	cert, key := pairOf(t, time.Now().Add(time.Hour))
	client := New(Options{RootFile: roots, CertFile: cert, KeyFile: key})
	if reply, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil); err != nil || reply.Status != 202 { // leaf and intermediate
		t.Errorf("%d, %v", reply.Status, err)
	}
	if err := os.WriteFile(key, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("a broken key: %v", err)
	}
}

func TestCustomServerVerification(t *testing.T) {
	server, roots := startTLS(t, func(http.ResponseWriter, *http.Request) {})
	no := errors.New("not that one")
	client := New(Options{RootFile: roots, TLS: func() *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { return no }}
	}})
	if _, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
}

func TestHeaderIsBoundedAndBodyIsNotDecoded(t *testing.T) {
	server, roots := startTLS(t, func(w http.ResponseWriter, r *http.Request) {
		size := 32 << 10
		if r.URL.Path == "/long" {
			size = 96 << 10
		}
		w.Header().Set("X-Long", strings.Repeat("x", size))
		_, _ = w.Write([]byte(r.Header.Get("Accept-Encoding")))
	})
	client := New(Options{RootFile: roots})
	if reply, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil); err != nil || len(reply.Body) > 0 {
		t.Errorf("asked for %q, %v", reply.Body, err)
	}
	if _, err := client.Do(t.Context(), http.MethodGet, server.URL+"/long", nil, nil); err == nil {
		t.Error("a header of 96 KiB was taken")
	}
}

func TestProxySettingIsUsed(t *testing.T) {
	no := errors.New("no proxy today")
	client := New(Options{Proxy: func(*http.Request) (*url.URL, error) { return nil, no }})
	if _, err := client.Do(t.Context(), http.MethodGet, "https://192.0.2.1/", nil, nil); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
}

func TestUnreadableRootsAreNamed(t *testing.T) {
	for says, path := range map[string]string{"no such file": "/nowhere/root.pem", "no PEM block": fileOf(t, []byte("none")), "not a regular file": t.TempDir()} {
		for _, kept := range []bool{false, true} {
			client := New(Options{RootFile: path, KeepAlive: kept})
			if _, err := client.Do(t.Context(), http.MethodGet, "https://192.0.2.1/", nil, nil); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", says, err)
			}
		}
	}
}
