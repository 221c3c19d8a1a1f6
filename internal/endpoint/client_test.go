package endpoint

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering is a transport in memory.
type answering func(*http.Request) (*http.Response, error)

func (a answering) RoundTrip(req *http.Request) (*http.Response, error) { return a(req) }

// ending is a body that something happens at the end of.
type ending struct {
	io.Reader
	atEnd func()
}

func (e ending) Read(b []byte) (int, error) {
	n, err := e.Reader.Read(b)
	if err == io.EOF {
		e.atEnd()
	}
	return n, err
}

func (ending) Close() error { return nil }

// A server notices that a connection is being closed, and what it has sent by then may
// end as if it were whole.
func TestReplyAfterRequestEndIsDropped(t *testing.T) {
	for _, redirects := range []Redirects{FollowGET, FollowSame, ReplyRedirects} {
		for want, end := range map[error]func(stop func()){
			context.Canceled:         func(stop func()) { stop() },
			context.DeadlineExceeded: func(func()) { time.Sleep(time.Minute) },
		} {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				client := New(Options{Redirects: redirects, Timeout: time.Minute, Transport: answering(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Body: ending{strings.NewReader(`{"half":1}`), func() { end(stop); synctest.Wait() }}}, nil
				})})
				reply, err := client.Do(ctx, http.MethodGet, "https://server.example/", nil, nil)
				if err != want || reply.Status != 0 || reply.Body != nil { //nolint:errorlint // that very error
					t.Errorf("%d %s, %v; want %v", reply.Status, reply.Body, err, want)
				}
			})
		}
	}
}

func TestRequestTimesOutAfterTenSecondsByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := New(Options{Transport: answering(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, errors.New("something else")
		})})
		begin := time.Now()
		_, err := client.Do(t.Context(), http.MethodGet, "https://server.example/", nil, nil)
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}

func TestBodyIsReadWholeOrNotAtAll(t *testing.T) {
	for name, test := range map[string]struct {
		most int64
		body io.Reader
		want error
	}{
		"as long as may be":     {5, strings.NewReader("12345"), nil},
		"longer":                {5, strings.NewReader("123456"), ErrTooLong},
		"a MiB":                 {0, strings.NewReader(strings.Repeat("x", 1<<20)), nil},
		"more than that":        {0, strings.NewReader(strings.Repeat("x", 1<<20+1)), ErrTooLong},
		"one that is cut short": {0, io.MultiReader(strings.NewReader("12"), failing{}), io.ErrUnexpectedEOF},
	} {
		client := New(Options{MaxBody: test.most, Transport: answering(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusTeapot, Body: io.NopCloser(test.body), Header: http.Header{"X": {"y"}}}, nil
		})})
		reply, err := client.Do(t.Context(), http.MethodGet, "https://server.example/", nil, nil)
		if !errors.Is(err, test.want) || (err == nil) != (reply.Status == http.StatusTeapot && reply.Header.Get("X") == "y" && len(reply.Body) > 0) {
			t.Errorf("%s: %d, %d bytes, %v", name, reply.Status, len(reply.Body), err)
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestErrorsContainNoURL(t *testing.T) {
	lost := errors.New("no way there")
	client := New(Options{Transport: answering(func(*http.Request) (*http.Response, error) { return nil, lost })})
	for address, says := range map[string]string{"https://server.example/?sesame": lost.Error(), "https://server.example/sesame\x00": "invalid"} {
		_, err := client.Do(t.Context(), http.MethodGet, address, nil, nil)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestRequestEndsAtItsDeadline(t *testing.T) {
	hold := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(hold)
	client := New(Options{Timeout: 50 * time.Millisecond})
	if _, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("got %v", err)
	}
}

// A body that drips would keep a connection as long as it likes.
func TestDrippingBodyEndsAtDeadline(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte("x"))
			w.(http.Flusher).Flush()
			select {
			case <-time.After(time.Millisecond):
			case <-r.Context().Done():
			}
		}
	}))
	defer server.Close()
	client := New(Options{Timeout: 50 * time.Millisecond})
	if _, err := client.Do(t.Context(), http.MethodGet, server.URL, nil, nil); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("got %v", err)
	}
}
