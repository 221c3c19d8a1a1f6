package rest_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

func TestMain(m *testing.M) {
	// Read once in a process. No proxy is asked for what is on loopback, as the servers here.
	os.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	goleak.VerifyTestMain(m)
}

func urlOf(t *testing.T, text string) setting.URL {
	t.Helper()
	parsed, err := setting.ParseURL(text)
	must(t, err)
	return parsed
}

func TestProxyFromEnvironmentIsUsed(t *testing.T) {
	client, err := rest.New(rest.Config{URL: urlOf(t, "https://192.0.2.1")})
	must(t, err)
	if err := client.Do(t.Context(), rest.Call{Path: "/x"}, nil); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "proxyconnect") {
		t.Errorf("%v", err)
	}
}

var must = fatal.If

func silent() *log.Logger { return slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) }

func fileOf(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	must(t, os.WriteFile(path, content, 0o600))
	return path
}

func rootOf(t *testing.T, server *httptest.Server) string {
	t.Helper()
	return fileOf(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// tlsOf trusts the roots in a file.
func tlsOf(t *testing.T, root string) *tls.Config {
	t.Helper()
	config, err := setting.TLS{RootFile: root}.Config()
	must(t, err)
	return config
}

// serve returns a client of a server that answers by handle, and the file of its root.
func serve(t *testing.T, config rest.Config, handle http.HandlerFunc) (*rest.Client, string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handle)
	server.Config.ErrorLog = silent()
	server.StartTLS()
	t.Cleanup(server.Close)
	root := rootOf(t, server)
	config.URL = urlOf(t, server.URL)
	if config.TLS.RootFile == "" {
		config.TLS.RootFile = root
	}
	client, err := rest.New(config)
	must(t, err)
	return client, root
}

func TestCallIsJSONBothWays(t *testing.T) {
	client, root := serve(t, rest.Config{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"method":"` + r.Method + `","type":"` + r.Header.Get("Content-Type") + `","own":"` + r.Header.Get("X-Own") + `","accept":"` + r.Header.Get("Accept") + `","new":1}`))
	})
	var got struct{ Method, Type, Own, Accept string }
	must(t, client.Do(t.Context(), rest.Call{Path: "/x", Body: map[string]int{"a": 1}, Header: http.Header{"X-Own": {"yes"}}}, &got))
	if got.Method != http.MethodPost || got.Type != "application/json" || got.Own != "yes" {
		t.Errorf("%+v", got)
	}
	must(t, client.Do(t.Context(), rest.Call{Path: "/x"}, &got))
	if got.Method != http.MethodGet || got.Type != "" || got.Accept != "application/json" {
		t.Errorf("%+v", got)
	}
	must(t, client.Do(t.Context(), rest.Call{Method: http.MethodPut, Path: "/x", Body: "y"}, &got))
	if got.Method != http.MethodPut {
		t.Errorf("%+v", got)
	}
	// The file is read for each connection.
	must(t, os.WriteFile(root, []byte("no roots any more"), 0o600))
	if err := client.Do(t.Context(), rest.Call{Path: "/x"}, nil); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), root) {
		t.Errorf("%v", err)
	}
}

func plainURL(t *testing.T, text string) (u setting.URL) {
	t.Helper()
	must(t, u.UnmarshalText([]byte(text)))
	return u
}

// A setting with the tag schemes:"https,http" may name a plain server. No credential goes there.
func TestPlainURLGetsNoCredential(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer server.Close()
	config := rest.Config{URL: plainURL(t, server.URL)}
	client, err := rest.New(config)
	must(t, err)
	must(t, client.Do(t.Context(), rest.Call{Path: "/x"}, nil))
	header := http.Header{"Authorization": {"Bearer sesame"}}
	for _, call := range []rest.Call{
		{Path: "/x", Hide: []ca.Token{"", "sesame"}}, {Path: "/x", Header: header}, {Path: "/x", Header: http.Header{"authorization": {"x"}}},
		{Path: "/x", Header: http.Header{"Cookie": {"x"}}}, {Path: "/x", Header: http.Header{"Proxy-Authorization": {"x"}}},
	} {
		err := client.Do(t.Context(), call, nil)
		if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "in plaintext, which is refused: use an https URL") || asked != 1 {
			t.Errorf("%v, asked %d times", err, asked)
		}
	}
	// A CA without tokens gets calls for workloads without one.
	must(t, client.Do(t.Context(), rest.Call{Path: "/x", Hide: []ca.Token{""}}, nil))
	config.AllowTokenOverPlaintext = true
	client, err = rest.New(config)
	must(t, err)
	must(t, client.Do(t.Context(), rest.Call{Path: "/x", Header: header}, nil))
}

func TestSettingsOfTLSNeedAnHTTPSURL(t *testing.T) {
	for _, options := range []setting.TLS{{RootFile: "roots.pem"}, {ServerName: "ca"}} {
		_, err := rest.New(rest.Config{URL: plainURL(t, "http://ca.example.org"), TLS: options})
		if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "use https, or remove those") {
			t.Errorf("%+v: %v", options, err)
		}
	}
}

// Without TLS, the pair of one call would authenticate nothing either.
func TestClientCertificateOfCallNeedsAnHTTPSURL(t *testing.T) {
	client, err := rest.New(rest.Config{URL: plainURL(t, "http://192.0.2.1")})
	must(t, err)
	err = client.Do(t.Context(), rest.Call{Path: "/x", Pair: setting.KeyPair{CertFile: "x.pem", KeyFile: "x-key.pem"}}, nil)
	if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "use an https URL") {
		t.Error(err)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	asked := 0
	client, _ := serve(t, rest.Config{}, func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "/elsewhere?token=sesame", http.StatusTemporaryRedirect)
	})
	err := client.Do(t.Context(), rest.Call{Path: "/x"}, nil)
	if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "redirect") || strings.Contains(err.Error(), "sesame") || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

func TestServerTextIsBoundedAndHasNoCredential(t *testing.T) {
	client, _ := serve(t, rest.Config{Failure: func(body []byte) string { return string(body) }}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte("no, " + r.Header.Get("X-Token") + "\n" + strings.Repeat("x", 5000)))
	})
	token := "sesame-open-sesame-open"
	err := client.Do(t.Context(), rest.Call{Path: "/x?q=quiet", Header: http.Header{"X-Token": {token}}, Hide: []ca.Token{ca.Token(token)}}, nil)
	if text := err.Error(); !errors.Is(err, ca.ErrDenied) || !strings.Contains(text, ` with 403: no, (secret)\nxxx`) || strings.Contains(text, "sesame") || strings.Contains(text, "\n") || strings.Contains(text, "quiet") || len(text) > 400 {
		t.Errorf("%s", text)
	}
}

func TestProviderCanOverrideReasonOfStatus(t *testing.T) {
	client, _ := serve(t, rest.Config{Reason: func(status int, body []byte) (ca.Reason, bool) {
		return ca.Unavailable, strings.Contains(string(body), "sealed")
	}}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(r.URL.Query().Get("say")))
	})
	for say, wants := range map[string]*ca.Error{"sealed": ca.ErrUnavailable, "{}": ca.ErrInvalid} {
		if err := client.Do(t.Context(), rest.Call{Path: "/x?say=" + say}, nil); !errors.Is(err, wants) {
			t.Errorf("%q: %v", say, err)
		}
	}
}

func TestRetryAfterIsReadInBothFormsAndBounded(t *testing.T) {
	for text, wants := range map[string]time.Duration{
		"7": 7 * time.Second, "-7": 0, "999999": 24 * time.Hour, "soon": 0, "": 0,
		time.Now().Add(time.Hour).UTC().Format(http.TimeFormat): time.Hour,
	} {
		client, _ := serve(t, rest.Config{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", text)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		least := wants
		if strings.HasSuffix(text, "GMT") {
			least -= 10 * time.Minute // what a busy machine takes
		}
		err := client.Do(t.Context(), rest.Call{Path: "/x"}, nil)
		if got := ca.RetryAfter(err); got > wants || got < least || !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}

func TestHangingServerTakesItsTimeout(t *testing.T) {
	client, _ := serve(t, rest.Config{Timeout: 50 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	begin := time.Now()
	if err := client.Do(t.Context(), rest.Call{Path: "/x"}, nil); !errors.Is(err, ca.ErrDeadline) || time.Since(begin) >= 20*time.Second {
		t.Errorf("%v after %s, which is the default", err, time.Since(begin))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Do(ctx, rest.Call{Path: "/x"}, nil); !errors.Is(err, ca.ErrCanceled) {
		t.Errorf("%v", err)
	}
}

func TestOtherRootOrNameIsNotTrusted(t *testing.T) {
	answer := func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }
	other := filepath.Join(t.TempDir(), "root.pem")
	must(t, os.WriteFile(other, catest.NewCA(catest.Options{}).Bundle().PEM(), 0o600))
	for name, config := range map[string]rest.Config{"root": {TLS: setting.TLS{RootFile: other}}, "name": {TLS: setting.TLS{ServerName: "another.example.net"}}} {
		client, _ := serve(t, config, answer)
		if err := client.Do(t.Context(), rest.Call{Path: "/x"}, nil); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "not trusted") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestURLMustHaveSchemeAndHostOnly(t *testing.T) {
	for _, text := range []string{"", "ftp://ca", "http://", "https://", "ca:443", "https://ca?x=1", "https://ca#x", "https://me:sesame@ca", "https://:443", "https://ca?"} {
		base, err := url.Parse(text)
		must(t, err)
		_, err = rest.New(rest.Config{URL: setting.URL{URL: *base}})
		if !errors.Is(err, ca.ErrInvalid) || strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
