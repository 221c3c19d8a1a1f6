package token_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
)

// metadataServer serves on loopback and returns the source that asks it.
func metadataServer(t *testing.T, handler http.HandlerFunc) token.Metadata {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return token.Metadata{Audience: "istio-ca&x", Host: strings.TrimPrefix(server.URL, "http://"), Timeout: 2 * time.Minute}
}

func google(w http.ResponseWriter) { w.Header().Set("Metadata-Flavor", "Google") }

func TestMetadataServerIsAskedForIdentityToken(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	end := time.Unix(1800000000, 0)
	source := metadataServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/computeMetadata/v1/instance/service-accounts/default/identity" || r.URL.Query().Get("audience") != "istio-ca&x" ||
			r.URL.Query().Get("format") != "full" || r.Header.Get("Metadata-Flavor") != "Google" {
			t.Errorf("asked for %s with %v", r.URL, r.Header)
		}
		google(w)
		w.Write([]byte(jwtUntil(end).Reveal()))
	})
	if got, err := source.Token(t.Context()); got.Token != jwtUntil(end) || !got.Expiry.Equal(end) || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestFakeMetadataServerIsRejected(t *testing.T) {
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		says    string
	}{
		"another server": {func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(jwt)) }, "not a metadata server"},
		"no account":     {func(w http.ResponseWriter, _ *http.Request) { google(w); w.WriteHeader(http.StatusNotFound) }, "answered with 404"},
		"empty":          {func(w http.ResponseWriter, _ *http.Request) { google(w) }, "is empty"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			google(w)
			w.Write([]byte(strings.Repeat("x", 1<<17)))
		}, "more than 65536 bytes"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			google(w)
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, "it redirects"},
	} {
		got, err := metadataServer(t, test.handler).Token(t.Context())
		if got.Token != "" || !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestSlowMetadataServerIsGivenUp(t *testing.T) {
	free := make(chan struct{})
	source := metadataServer(t, func(http.ResponseWriter, *http.Request) { <-free })
	defer close(free)
	source.Timeout = 10 * time.Millisecond
	if _, err := source.Token(t.Context()); !errors.Is(err, ca.ErrDeadline) {
		t.Errorf("%v", err)
	}
}
