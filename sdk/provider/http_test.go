package provider_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// endless never ends, and notes what is done to it.
type endless struct {
	read   int
	closed bool
}

func (e *endless) Read(b []byte) (int, error) {
	e.read += len(b)
	return copy(b, strings.Repeat("x", len(b))), nil
}

func (e *endless) Close() error { e.closed = true; return nil }

func TestHTTPStatusBecomesError(t *testing.T) {
	for status, want := range map[int]*ca.Error{
		202: ca.ErrPending, 301: ca.ErrInvalid, 400: ca.ErrInvalid, 401: ca.ErrUnauthenticated, 403: ca.ErrDenied, 404: ca.ErrInvalid, 409: ca.ErrAborted,
		429: ca.ErrRateLimited, 500: ca.ErrInternal, 501: ca.ErrUnavailable, 503: ca.ErrUnavailable, 599: ca.ErrUnavailable,
	} {
		resp := &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"17"}}, Request: httptest.NewRequest(http.MethodPost, "https://ca.example/sign?token=sesame", nil)}
		err := provider.HTTPError(resp)
		if !errors.Is(err, want) || ca.RetryAfter(err) != 17*time.Second || !strings.Contains(err.Error(), "ca.example answered POST /sign with ") || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%d: %v", status, err)
		}
	}
	for _, status := range []int{200, 201, 204} {
		if err := provider.HTTPError(&http.Response{StatusCode: status}); err != nil {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestRetryAfterOfReplyIsSecondsOrDateAndBounded(t *testing.T) {
	for value, want := range map[string][2]time.Duration{
		"": {0, 0}, "-1": {0, 0}, "soon": {0, 0}, "120": {2 * time.Minute, 2 * time.Minute}, "9999999": {24 * time.Hour, 24 * time.Hour},
		time.Now().Add(time.Hour).UTC().Format(http.TimeFormat): {59 * time.Minute, time.Hour}, time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): {0, 0},
	} {
		err := provider.HTTPError(&http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {value}}})
		if got := ca.RetryAfter(err); got < want[0] || got > want[1] {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}

func TestHTTPErrorReadsBoundedPieceAndClosesNothing(t *testing.T) {
	body := &endless{}
	err := provider.HTTPError(&http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: body})
	if body.closed || body.read > 64<<10 || len(err.Error()) > 400 || !strings.Contains(err.Error(), "xxx") {
		t.Errorf("read %d, closed %t: %v", body.read, body.closed, err)
	}
	page := &endless{}
	if err := provider.HTTPError(&http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{"Content-Type": {"text/html"}}, Body: page}); page.read > 0 || strings.Contains(err.Error(), "xxx") {
		t.Errorf("read %d of a page: %v", page.read, err)
	}
}

func TestHTTPErrorHidesCredentials(t *testing.T) {
	req := httptest.NewRequest(http.MethodPost, "https://ca.example/sesame-three/sign", nil)
	req.Header.Set("Authorization", "Bearer sesame-one")
	req.Header.Add("Authorization", "Basic c2VzYW1lLWZvdXI=")
	resp := &http.Response{
		StatusCode: http.StatusForbidden, Request: req, Header: http.Header{"Content-Type": {"application/problem+json"}},
		Body: io.NopCloser(strings.NewReader(`{"detail":"not with sesame-one, c2VzYW1lLWZvdXI= and \x1bsesame-two"}`)),
	}
	err := provider.HTTPError(resp, "sesame-two", "sesame-three")
	if strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "c2Vz") || strings.Contains(err.Error(), "\x1b") || !strings.Contains(err.Error(), "not with (secret), (secret)") {
		t.Errorf("got %v", err)
	}
}

func TestHTTPCallReturnsBoundedBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			_, _ = io.WriteString(w, "hello "+r.Header.Get("Authorization"))
		case "/hang":
			<-r.Context().Done()
		case "/flood":
			_, _ = w.Write(make([]byte, 3<<20))
		default:
			http.Error(w, "no, "+r.Header.Get("Authorization"), http.StatusForbidden)
		}
	}))
	defer server.Close()
	call := func(path string, limit time.Duration) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path+"?token=sesame-two", nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer sesame-one")
		body, err := provider.DoHTTP(server.Client(), req)
		return string(body), err
	}
	if said, err := call("/good", time.Minute); err != nil || said != "hello Bearer sesame-one" {
		t.Errorf("got %q, %v", said, err)
	}
	for path, want := range map[string]*ca.Error{"/hang": ca.ErrDeadline, "/flood": ca.ErrInternal, "/no": ca.ErrDenied} {
		limit := time.Minute
		if path == "/hang" {
			limit = 50 * time.Millisecond
		}
		if _, err := call(path, limit); !errors.Is(err, want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v", path, err)
		}
	}
	server.Close()
	if _, err := call("/good", time.Minute); !errors.Is(err, ca.ErrUnavailable) || strings.Contains(err.Error(), "sesame") {
		t.Errorf("no server: %v", err)
	}
}

// Go's client keeps the Authorization header for the same host, whatever its scheme.
func TestRedirectToPlaintextIsNotFollowed(t *testing.T) {
	asked := false
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer plain.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("csr"))
	must(t, err)
	req.Header.Set("Authorization", "Bearer sesame")
	if _, err = provider.DoHTTP(server.Client(), req); err == nil || asked || !strings.Contains(err.Error(), "redirect from https to http") {
		t.Errorf("%v, asked: %t", err, asked)
	}
}
