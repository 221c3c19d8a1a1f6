package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
)

const ourToken = ca.Token("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ3ZWIifQ.c2lnbmF0dXJl")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is an API server in memory.
type server func(*http.Request) (*http.Response, error)

func (s server) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

func replies(status int, body string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func client(t *testing.T, by server) *Client {
	t.Helper()
	c, err := New(Config{URL: "https://api.test", Transport: by, Token: token.Static{Value: ourToken}, MaxReply: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCallHasTokenTypeAndBody(t *testing.T) {
	c := client(t, func(r *http.Request) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		got := fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Content-Type"), " ", string(body))
		if r.Header.Get("Authorization") != "Bearer "+ourToken.Reveal() || r.Header.Get("User-Agent") != "countersign" {
			t.Errorf("%v", r.Header)
		}
		return replies(http.StatusOK, `{"got":`+string(must(json.Marshal(got)))+`}`)
	})
	for want, call := range map[string]Call{
		"GET https://api.test/x  ":                                         {Path: "/x"},
		"GET https://api.test/x?a=b  ":                                     {Path: "/x", Query: url.Values{"a": {"b"}}},
		`POST https://api.test/x application/json {"a":1}`:                 {Method: http.MethodPost, Path: "/x", Body: map[string]int{"a": 1}},
		`PATCH https://api.test/x application/merge-patch+json {"a":null}`: {Method: http.MethodPatch, Path: "/x", Type: MergePatch, Body: map[string]any{"a": nil}},
	} {
		var out struct{ Got string }
		if err := c.Do(t.Context(), call, &out); err != nil || out.Got != want {
			t.Errorf("%q, %v; want %q", out.Got, err, want)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestFailureHasReasonAndHidesTokens(t *testing.T) {
	const other = ca.Token("another-token-of-a-caller")
	for _, test := range []struct {
		status int
		body   string
		reason ca.Reason
		says   string
		wait   time.Duration
	}{
		{404, `{"message":"pods \"x\" not found"}`, ca.Unavailable, `api.test answered GET /x with 404: pods "x" not found`, 0},
		{409, `{"message":"conflict"}`, ca.Aborted, "409: conflict", 0},
		{429, `{"message":"slow down","details":{"retryAfterSeconds":7}}`, ca.RateLimited, "slow down", 7 * time.Second},
		{403, `{"message":"exceeded quota: secrets"}`, ca.RateLimited, "exceeded quota", 0},
		{403, `{"message":"` + ourToken.Reveal() + " " + other.Reveal() + `"}`, ca.Denied, "(secret) (secret)", 0},
		{400, "<html>", ca.Unavailable, "with 400", 0},
		{302, "", ca.Invalid, "redirects are not followed", 0},
		{200, "sesame", ca.Internal, "invalid JSON", 0},
		{200, strings.Repeat("x", 2<<10), ca.Internal, "more than 1024 bytes", 0},
	} {
		c := client(t, func(*http.Request) (*http.Response, error) { return replies(test.status, test.body) })
		var out any
		err := c.Do(t.Context(), Call{Path: "/x", Hide: []ca.Token{other}}, &out)
		if ca.ReasonFor(err) != test.reason || !strings.Contains(err.Error(), test.says) || ca.RetryAfter(err) != test.wait || Answered(err, test.status) != (test.status != 200) {
			t.Errorf("%d: %v, wait %s", test.status, err, ca.RetryAfter(err))
		}
		if strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), ourToken.Reveal()) || strings.Contains(err.Error(), other.Reveal()) {
			t.Errorf("%d: %v", test.status, err)
		}
	}
}

func TestServerWithoutAnswerIsLeftAfterTenSeconds(t *testing.T) {
	hangs := func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }
	for name, call := range map[string]func(context.Context, *Client) error{
		"call":  func(ctx context.Context, c *Client) error { return c.Do(ctx, Call{Path: "/x"}, nil) },
		"watch": func(ctx context.Context, c *Client) error { return c.Watch(ctx, Call{Path: "/x"}, "1", nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			err := call(t.Context(), client(t, hangs))
			if ca.ReasonFor(err) != ca.Unavailable || !strings.Contains(err.Error(), "within 10s") || time.Since(begun) != callTimeout {
				t.Errorf("%s: %v after %s", name, err, time.Since(begun))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := call(ctx, client(t, hangs)); ca.ReasonFor(err) != ca.Deadline {
				t.Errorf("%s: %v at the caller's deadline", name, err)
			}
		})
	}
}

// source is a source of tokens that learns of a rejected one.
type source struct{ rejected []ca.Token }

func (*source) Token(context.Context) (ca.Bearer, error) { return ca.Bearer{Token: ourToken}, nil }
func (s *source) Rejected(t ca.Token)                    { s.rejected = append(s.rejected, t) }

func TestRejectedTokenIsReported(t *testing.T) {
	var from source
	c := must(New(Config{URL: "https://api.test", Token: &from, Transport: server(func(*http.Request) (*http.Response, error) { return replies(401, "") })}))
	if err := c.Do(t.Context(), Call{Path: "/x"}, nil); ca.ReasonFor(err) != ca.Unauthenticated || len(from.rejected) != 1 {
		t.Errorf("%v, %d rejected", err, len(from.rejected))
	}
	from.rejected = nil
	if err := c.Watch(t.Context(), Call{Path: "/x"}, "1", nil); !Answered(err, 401) || len(from.rejected) != 1 {
		t.Errorf("%v, %d rejected by a watch", err, len(from.rejected))
	}
}

func TestPodReadsItsFilesForEachCall(t *testing.T) {
	account = t.TempDir()
	write := func(name, content string) {
		must("", os.WriteFile(filepath.Join(account, name), []byte(content), 0o600))
	}
	cfg := InCluster()
	if _, err := Namespace(); ca.ReasonFor(err) != ca.Unavailable {
		t.Errorf("outside of a pod: %v", err)
	}
	if cfg.URL != inClusterURL || cfg.RootFile != account+"/ca.crt" {
		t.Errorf("%+v", cfg)
	}
	var got string
	cfg.Transport = server(func(r *http.Request) (*http.Response, error) {
		got = r.Header.Get("Authorization")
		return replies(200, "{}")
	})
	c := must(New(cfg))
	if err := c.Do(t.Context(), Call{Path: "/x"}, nil); ca.ReasonFor(err) != ca.Unavailable || !strings.Contains(err.Error(), "token") {
		t.Errorf("without a token: %v", err)
	}
	write("namespace", "shop\n")
	if namespace, err := Namespace(); err != nil || namespace != "shop" {
		t.Errorf("%q, %v", namespace, err)
	}
	for _, text := range []string{"one", "two"} {
		write("token", text+"\n")
		if err := c.Do(t.Context(), Call{Path: "/x"}, nil); err != nil || got != "Bearer "+text {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
	}
}

func TestConfigNeedsURLOfServer(t *testing.T) {
	for _, text := range []string{"", "http://10.0.0.1", "https://u:p@10.0.0.1", "https://10.0.0.1/?x", "https://10.0.0.1/#x", "http://127.0.0.1"} {
		if _, err := New(Config{URL: text}); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestDeleteIsGuardedAndForgivesWhatIsGone(t *testing.T) {
	for _, test := range []struct {
		status      int
		version     string
		wants, fail bool
	}{{200, "", true, false}, {404, "5", true, false}, {409, "", true, false}, {409, "5", true, true}, {403, "", true, true}} {
		c := client(t, func(r *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(r.Body)
			if !bytes.Contains(body, []byte(`"preconditions":{"uid":"u1"`)) || bytes.Contains(body, []byte("resourceVersion")) != (test.version != "") {
				t.Errorf("%s", body)
			}
			return replies(test.status, "{}")
		})
		if err := c.Delete(t.Context(), "/x", "u1", test.version); (err != nil) != test.fail {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

func TestListReadsEachPageAndTakesSmallerOnes(t *testing.T) {
	var asked []string
	c := client(t, func(r *http.Request) (*http.Response, error) {
		q := r.URL.Query()
		asked = append(asked, q.Get("limit")+" "+q.Get("continue"))
		if len(q.Get("limit")) == 3 {
			return replies(200, strings.Repeat("x", 2<<10))
		}
		if q.Get("continue") == "" {
			return replies(200, `{"metadata":{"resourceVersion":"8","continue":"c1"},"items":[{"n":1},{"n":2}]}`)
		}
		return replies(200, `{"metadata":{"resourceVersion":"9"},"items":[{"n":3}]}`)
	})
	var got []string
	version, err := c.List(t.Context(), Call{Path: "/x"}, func(o json.RawMessage) error { got = append(got, string(o)); return nil })
	if want := `[{"n":1} {"n":2} {"n":3}]`; err != nil || version != "9" || fmt.Sprint(got) != want {
		t.Errorf("%q %v, %v", version, got, err)
	}
	if want := "[500  250  125  62  62 c1]"; fmt.Sprint(asked) != want {
		t.Errorf("asked %v, want %s", asked, want)
	}
	ends := errors.New("enough")
	if _, err := c.List(t.Context(), Call{Path: "/x"}, func(json.RawMessage) error { return ends }); !errors.Is(err, ends) {
		t.Error(err)
	}
}
