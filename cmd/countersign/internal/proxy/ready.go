package proxy

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// readyFor is how long an answer of Envoy's /ready holds, however many ask.
const readyFor = 500 * time.Millisecond

// NotReady returns in a few words why the proxy takes no traffic; "" is ready. Without an admin
// address, only a proxy that is ending is known not to be.
func (p *Proxy) NotReady(ctx context.Context) string {
	switch s := p.Status(); {
	case s.State == Draining, s.State == Stopping:
		return "the proxy is " + string(s.State)
	case p.cfg.Drain.Admin == "":
		return ""
	case s.State != Running:
		return "the proxy is not running: " + string(s.State)
	default:
		return p.live.of(ctx, s.PID, p.askReady)
	}
}

// askReady asks Envoy for its state.
func (p *Proxy) askReady(ctx context.Context) string {
	answer, err := p.ask(ctx, http.MethodGet, "/ready")
	state := strings.TrimSpace(answer)
	switch {
	case err == nil && state == "LIVE":
		return ""
	case slices.Contains([]string{"PRE_INITIALIZING", "INITIALIZING", "DRAINING"}, state):
		return "the proxy is " + state
	}
	p.log.Debug("the proxy does not say whether it is ready", "admin", p.cfg.Drain.Admin, "error", err)
	return "the proxy's admin address does not say that it is LIVE"
}

// readiness is the latest answer of one process. Strangers may ask for it, so one question
// at a time reaches the proxy.
type readiness struct {
	mu     sync.Mutex
	pid    int
	at     time.Time
	why    string
	asking chan struct{} // closed when the answer is there; nil: no request is running
}

// of returns the answer of a process, asking if there is no fresh one.
func (r *readiness) of(ctx context.Context, pid int, ask func(context.Context) string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asking != nil {
		return r.join(ctx, pid)
	}
	if r.pid == pid && time.Since(r.at) < readyFor {
		return r.why
	}
	done := make(chan struct{})
	r.asking = done
	r.mu.Unlock()
	why := ask(context.WithoutCancel(ctx)) // others wait for it, too
	r.mu.Lock()
	r.pid, r.at, r.why, r.asking = pid, time.Now(), why, nil
	close(done)
	return why
}

// join waits for the answer to another caller's request.
func (r *readiness) join(ctx context.Context, pid int) string {
	done := r.asking
	r.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	r.mu.Lock()
	switch {
	case ctx.Err() != nil:
		return "the caller has left"
	case r.pid != pid:
		return "the proxy was just started"
	}
	return r.why
}
