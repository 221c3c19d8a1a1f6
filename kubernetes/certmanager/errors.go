package certmanager

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/cert-manager/issuer-lib/controllers/signer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// deniedFor is how long a request stays pending after its authority first denied it or found
	// it invalid, which may be due to the authority's settings. Then it fails, and cert-manager makes
	// another request with another key an hour later, and with growing pauses after that.
	deniedFor = time.Hour
	// troubleFor is how long an issuer is not ready after an error that is about its authority.
	troubleFor = 30 * time.Second
)

// errorOf returns what issuer-lib makes of an error: the request is Failed, it stays pending and
// comes back, or its issuer is not ready. A plain error is never returned, as issuer-lib makes it
// final after some time.
func (h *hooks) errorOf(uid types.UID, err error) error {
	if no, ok := signing.Refused(err); ok {
		return signer.PermanentError{Err: no}
	}
	if errors.Is(err, errAtWork) || errors.Is(err, signing.ErrShut) {
		again, _ := signing.Pending(err)
		return signer.PendingError{Err: err, RequeueAfter: again}
	}
	out := signing.OutcomeOf(err)
	said := errors.New(out.Message)
	switch ca.ActionFor(err) {
	case ca.EndAttempt:
		if out.Final || h.denials.since(uid) > deniedFor {
			return signer.PermanentError{Err: said}
		}
	case ca.RefreshToken, ca.Configure, ca.Missing:
		if !ra.Refused(err) {
			return signer.IssuerError{Err: said}
		}
	}
	return signer.PendingError{Err: said, RequeueAfter: out.Again}
}

// resultOf returns the result for a [signing.Event].
func resultOf(err error) string {
	switch {
	case errors.As(err, &signer.PermanentError{}):
		return signing.ResultFailed
	case errors.As(err, &signer.IssuerError{}):
		return signing.ResultNotReady
	}
	return signing.ResultPending
}

// mostDenied bounds the requests whose first denial is remembered.
const mostDenied = 20000

// denials records when an authority first denied each request. The zero value is ready.
type denials struct {
	mu    sync.Mutex
	first map[types.UID]time.Time // monotonic
}

// since returns how long ago an authority first denied a request that it denies now. A request
// beyond the bound counts as denied for the first time, and so stays pending.
func (d *denials) since(uid types.UID) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if first, known := d.first[uid]; known {
		return now.Sub(first)
	}
	if len(d.first) >= mostDenied { // requests that failed by then, or were not denied again
		maps.DeleteFunc(d.first, func(_ types.UID, first time.Time) bool { return now.Sub(first) > 2*deniedFor })
	}
	if d.first == nil {
		d.first = map[types.UID]time.Time{}
	}
	if len(d.first) < mostDenied {
		d.first[uid] = now
	}
	return 0
}

// troubles are errors about authorities, for the issuers that name them. The zero value is ready.
type troubles struct {
	mu  sync.Mutex
	all map[string]trouble
}

type trouble struct {
	err   error
	until time.Time // monotonic
}

// note takes the outcome of a request.
func (t *troubles) note(authority string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if bad, ok := errors.AsType[signer.IssuerError](err); ok {
		if t.all == nil {
			t.all = map[string]trouble{}
		}
		t.all[authority] = trouble{bad.Err, time.Now().Add(troubleFor)}
	} else if err == nil {
		delete(t.all, authority)
	}
}

// of returns what is wrong with an authority, or nil if requests may try.
func (t *troubles) of(authority string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now, found := t.all[authority]; found && time.Now().Before(now.until) {
		return now.err
	}
	return nil
}
