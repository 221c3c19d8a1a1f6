package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/internal/transport"
)

// Drain lets Envoy finish what it has begun before it is sent SIGTERM.
type Drain struct {
	// Admin is Envoy's admin address, HOST:PORT or unix:PATH. Default: none, no drain.
	Admin string
	// Time is how long to drain at most. Required with Admin.
	Time time.Duration
	// WhenIdle ends the drain early when no connection is left, but not before MinTime.
	WhenIdle bool
	MinTime  time.Duration
}

const (
	// adminTimeout limits one request to the admin address.
	adminTimeout = 2 * time.Second
	// idleInterval is the time between two questions whether the proxy is idle.
	idleInterval = 500 * time.Millisecond
	// maxAnswer limits an answer of the admin address.
	maxAnswer = 1 << 20
)

// drain starts to drain the current life, if it can be. The returned channel is closed when
// it may be sent SIGTERM; nil means at once.
func (p *Proxy) drain() <-chan struct{} {
	if p.cfg.Drain.Admin == "" || p.current == nil || p.current.dismissed {
		return nil
	}
	done := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.Drain.Time)
	p.endDrain = func() { cancel(); <-done }
	go func() {
		defer close(done)
		defer cancel()
		p.drainWithin(ctx)
	}()
	return done
}

// drainWithin returns when ctx ends, or earlier when the proxy is idle, if that is wanted. A
// proxy that cannot be reached gets its time, too: it may still finish what it has begun.
func (p *Proxy) drainWithin(ctx context.Context) {
	d := p.cfg.Drain
	least := time.After(d.MinTime)
	if _, err := p.ask(ctx, http.MethodPost, "/drain_listeners?graceful"); err != nil {
		p.log.Warn("failed to drain the proxy", "admin", d.Admin, "error", err)
	}
	if !d.WhenIdle {
		<-ctx.Done()
		return
	}
	for wait := least; ; wait = time.After(idleInterval) {
		select {
		case <-wait:
		case <-ctx.Done():
			return
		}
		if p.idle(ctx) {
			p.log.Info("the proxy is idle, ending its drain")
			return
		}
	}
}

// idle reports whether no client is connected, by the proxy's statistics.
func (p *Proxy) idle(ctx context.Context) bool {
	stats, err := p.ask(ctx, http.MethodGet, "/stats?usedonly&filter="+url.QueryEscape(`^listener\..*\.downstream_cx_active$`))
	if err != nil {
		p.log.Debug("failed to check whether the proxy is idle", "error", err)
		return false
	}
	open, err := connections(stats)
	return err == nil && open == 0
}

// connections adds up the open connections in Envoy's statistics, those to the admin address
// aside. Workers count them once more, which does not matter for none.
func connections(stats string) (open uint64, err error) {
	lines := bufio.NewScanner(strings.NewReader(stats))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		if strings.HasPrefix(name, "listener.admin.") {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || !strings.HasPrefix(name, "listener.") {
			return 0, fmt.Errorf("not a statistic of a listener: %.256q", lines.Text())
		}
		open += min(n, 1) // cannot overflow
	}
	return open, lines.Err()
}

// ask sends a request to the proxy's admin address. An answer other than 200 is an error, too.
func (d Drain) ask(ctx context.Context, method, path string) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, http.NoBody)
	if err != nil {
		return "", err
	}
	client, err := d.client()
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return "", err
	case len(body) > maxAnswer:
		return "", fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	case resp.StatusCode != http.StatusOK:
		return string(body), fmt.Errorf("the answer is %.64q", resp.Status)
	}
	return string(body), nil
}

// client returns one that connects to the admin address, whatever the URL's host, once for
// each request.
func (d Drain) client() (*http.Client, error) {
	admin, err := unixsocket.ParseAddress(d.Admin)
	if err != nil {
		return nil, fmt.Errorf("invalid admin address: %w", err)
	}
	return &http.Client{
		Transport:     transport.Local(admin),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}
