package rest_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

func TestEachStatusHasItsReason(t *testing.T) {
	silent := func([]byte) string { return "" }
	client, _ := serve(t, rest.Config{Failure: silent}, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(status)
		if status >= 400 {
			_, _ = io.WriteString(w, "{}")
		}
	})
	for status, wants := range map[int]*ca.Error{
		300: ca.ErrInvalid, 304: ca.ErrInvalid, 400: ca.ErrInvalid, 401: ca.ErrUnauthenticated, 403: ca.ErrDenied, 404: ca.ErrInvalid, 408: ca.ErrUnavailable,
		409: ca.ErrAborted, 418: ca.ErrInvalid, 425: ca.ErrRateLimited, 429: ca.ErrRateLimited, 500: ca.ErrInternal, 501: ca.ErrUnavailable, 502: ca.ErrUnavailable,
		503: ca.ErrUnavailable, 504: ca.ErrUnavailable, 599: ca.ErrUnavailable,
	} {
		err := client.Do(t.Context(), rest.Call{Path: "/" + strconv.Itoa(status)}, nil)
		if !errors.Is(err, wants) || !strings.Contains(err.Error(), client.Host()+" answered GET /"+strconv.Itoa(status)+" with "+strconv.Itoa(status)) || strings.HasSuffix(err.Error(), ": ") {
			t.Errorf("%d: %v", status, err)
		}
	}
	for _, status := range []int{200, 201, 204} {
		must(t, client.Do(t.Context(), rest.Call{Path: "/" + strconv.Itoa(status)}, nil))
	}
}

// An ingress returns 404, and others 400 or 405, until the authority behind it is there.
func TestProxysRefusalLeavesTheRequestOpen(t *testing.T) {
	for body, foreign := range map[string]bool{
		"<html><h1>404 Not Found</h1>": true, "default backend - 404": true, "": true, "null": true, "[]": true, `"no"`: true,
		"{}": false, `{"errors":[]}`: false,
	} {
		client, _ := serve(t, rest.Config{}, func(w http.ResponseWriter, r *http.Request) {
			status, _ := strconv.Atoi(r.URL.Path[1:])
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
		for _, status := range []int{400, 404, 405, 410, 421} {
			err := client.Do(t.Context(), rest.Call{Path: "/" + strconv.Itoa(status)}, nil)
			if wants := map[bool]*ca.Error{true: ca.ErrUnavailable, false: ca.ErrInvalid}[foreign]; !errors.Is(err, wants) || errors.Is(err, rest.ErrForeign) != foreign {
				t.Errorf("%d with %q: %v", status, body, err)
			}
		}
		if err := client.Do(t.Context(), rest.Call{Path: "/403"}, nil); !errors.Is(err, ca.ErrDenied) {
			t.Errorf("403 with %q: %v", body, err)
		}
	}
}

func TestMalformedAnswerIsServerFaultAndNotQuoted(t *testing.T) {
	client, _ := serve(t, rest.Config{}, func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.Path[1:])
		_, _ = io.WriteString(w, strings.Repeat("sesame ", size))
	})
	var out any
	for path, says := range map[string]string{"/0": "invalid JSON", "/3": "invalid JSON", "/300000": "more than 2097152 bytes"} {
		if err := client.Do(t.Context(), rest.Call{Path: path}, &out); !errors.Is(err, ca.ErrInternal) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v", path, err)
		}
	}
	must(t, client.Do(t.Context(), rest.Call{Path: "/3"}, nil)) // the reply is ignored
	must(t, client.Do(t.Context(), rest.Call{Path: "/299000"}, nil))
}

func TestWebPageIsNamed(t *testing.T) {
	client, _ := serve(t, rest.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<html>sesame</html>")
	})
	var out any
	if err := client.Do(t.Context(), rest.Call{Path: "/x"}, &out); !errors.Is(err, ca.ErrInternal) || !strings.Contains(err.Error(), "GET /x with a web page") || strings.Contains(err.Error(), "sesame") {
		t.Error(err)
	}
}

func TestUnencodableBodyIsNotSent(t *testing.T) {
	client, _ := serve(t, rest.Config{}, func(http.ResponseWriter, *http.Request) { t.Error("it was asked") })
	if err := client.Do(t.Context(), rest.Call{Path: "/x", Body: func() {}}, nil); !errors.Is(err, ca.ErrInternal) {
		t.Errorf("%v", err)
	}
}

// pairOf is a certificate of a name, in files.
func pairOf(t *testing.T, authority *catest.CA, name string) (pair setting.KeyPair, loaded tls.Certificate) {
	t.Helper()
	chain, key := authority.Pair(0, "", name)
	loaded, err := tls.X509KeyPair(chain, key)
	must(t, err)
	return setting.KeyPair{CertFile: fileOf(t, chain), KeyFile: fileOf(t, key)}, loaded
}

func TestCallUsesItsOwnCertificateOrTheClients(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	own, _ := pairOf(t, authority, "own.example.org")
	config, _ := pairOf(t, authority, "config.example.org")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strconv.Quote(r.TLS.PeerCertificates[0].DNSNames[0]))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	client, err := rest.New(rest.Config{URL: urlOf(t, server.URL), TLS: setting.TLS{RootFile: rootOf(t, server), ClientCertFile: config.CertFile, ClientKeyFile: config.KeyFile}})
	must(t, err)
	for want, pair := range map[string]setting.KeyPair{"own.example.org": own, "config.example.org": {}} {
		var got string
		if err := client.Do(t.Context(), rest.Call{Path: "/x", Pair: pair}, &got); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	missing := setting.KeyPair{CertFile: own.CertFile, KeyFile: "/nowhere"}
	if err := client.Do(t.Context(), rest.Call{Path: "/x", Pair: missing}, nil); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "client certificate for "+client.Host()) {
		t.Errorf("a missing key: %v", err)
	}
}

// A certificate's names are the server's words, too.
func TestUntrustedServerErrorHidesCredential(t *testing.T) {
	const token = "sesame-open-sesame-open.example.org"
	authority := catest.NewCA(catest.Options{})
	_, pair := pairOf(t, authority, token)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = silent()
	server.StartTLS()
	defer server.Close()
	client, err := rest.New(rest.Config{URL: urlOf(t, server.URL), TLS: setting.TLS{ServerName: "ca.example.org", RootFile: fileOf(t, authority.Bundle().PEM())}})
	must(t, err)
	err = client.Do(t.Context(), rest.Call{Path: "/x", Hide: []ca.Token{token}}, nil)
	if !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "is not trusted: ") || !strings.Contains(err.Error(), "(secret)") || strings.Contains(err.Error(), "sesame") {
		t.Errorf("%v", err)
	}
	server.Close()
	if err := client.Do(t.Context(), rest.Call{Path: "/x"}, nil); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("no server: %v", err)
	}
}

func TestSendTakesAndReturnsWhatIsNotJSON(t *testing.T) {
	client, _ := serve(t, rest.Config{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/pkcs10" || r.Header.Get("Accept") != "application/pkcs7-mime" {
			t.Errorf("%s %v", r.Method, r.Header)
		}
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write(body)
	})
	reply, err := client.Send(t.Context(), rest.Call{
		Path: "/x", Header: http.Header{"Accept": {"application/pkcs7-mime"}}, Body: rest.Content{Type: "application/pkcs10", Body: []byte("hello")},
	})
	if err != nil || reply.Status != http.StatusAccepted || reply.Header.Get("Retry-After") != "7" || string(reply.Body) != "hello" {
		t.Errorf("%+v, %v", reply, err)
	}
}
