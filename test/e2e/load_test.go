package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// An answer to /long takes longer than a rotation, so that each sees a reload.
const (
	longLines = 60
	longPause = 100 * time.Millisecond
)

var longLine = strings.Repeat("=", 1023) + "\n"

// startProgram starts what stands behind a server that ends TLS, and returns where.
func startProgram(t *testing.T) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/long" {
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(longLines*len(longLine)))
		ticker := time.NewTicker(longPause)
		defer ticker.Stop()
		for range longLines {
			_, err := io.WriteString(w, longLine)
			if err = errors.Join(err, http.NewResponseController(w).Flush()); err != nil {
				return
			}
			<-ticker.C
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return strings.TrimPrefix(server.URL, "http://")
}

// load is what a server bears beside a prober: more connections that are new each, long
// answers, and requests that follow each other on connections that are kept.
type load struct {
	url string

	mu       sync.Mutex
	changed  notice
	answers  map[string]int // by the kind of asker
	failures []error
}

func startLoad(t *testing.T, w *workload, target, server string) *load {
	t.Helper()
	l := &load{url: "https://" + target, changed: newNotice(), answers: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	ask := func(kind, path string, transport *http.Transport, pause time.Duration) {
		transport.TLSClientConfig = w.tlsConfig(server)
		all.Go(func() {
			defer transport.CloseIdleConnections()
			l.ask(ctx, &http.Client{Transport: transport}, kind, path, pause)
		})
	}
	for range 3 {
		ask("long", "/long", &http.Transport{DisableKeepAlives: true}, 0)
	}
	for range 2 {
		ask("new", "/", &http.Transport{DisableKeepAlives: true}, probeInterval)
	}
	ask("kept", "/", &http.Transport{}, probeInterval)
	ask("kept, HTTP/2", "/", &http.Transport{ForceAttemptHTTP2: true}, probeInterval)
	ask("long, HTTP/2", "/long", &http.Transport{ForceAttemptHTTP2: true}, 0)
	t.Cleanup(func() { cancel(); all.Wait() })
	return l
}

// ask asks, one request after the other, until ctx ends.
func (l *load) ask(ctx context.Context, client *http.Client, kind, path string, pause time.Duration) {
	for ctx.Err() == nil {
		err := get(ctx, client, l.url+path)
		if ctx.Err() != nil {
			return
		}
		l.say(kind, err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", resp.Status)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && strings.HasSuffix(url, "/long") && n != longLines*int64(len(longLine)) {
		err = fmt.Errorf("the answer ended after %d bytes", n)
	}
	return err
}

func (l *load) say(kind string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.changed.tell()
	if err != nil {
		l.failures = append(l.failures, fmt.Errorf("%s at %s: %w", kind, time.Now().Format(time.TimeOnly+".000"), err))
	} else {
		l.answers[kind]++
	}
}

// noFailures waits until each kind of asker has had some answers, all whole.
func (l *load) noFailures(t *testing.T) {
	t.Helper()
	await(t, &l.mu, &l.changed, "answers to all kinds of requests", func() bool {
		a := l.answers
		return len(l.failures) > 0 || a["long"] >= 6 && a["long, HTTP/2"] >= 2 && a["new"] >= 100 && a["kept"] >= 50 && a["kept, HTTP/2"] >= 50
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range l.failures {
		t.Error(err)
	}
	t.Logf("answers: %v", l.answers)
}
