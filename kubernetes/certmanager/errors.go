package certmanager

import (
	"errors"
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
	// it invalid. That may be about the authority's settings. After it, cert-manager makes another request, with
	// another key, an hour later and ever more seldom.
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
	if errors.Is(err, errAtWork) {
		return signer.PendingError{Err: err, RequeueAfter: signing.Spread(lookAgain)}
	}
	out := signing.OutcomeOf(err)
	said := errors.New(out.Message)
	switch ca.ActionFor(err) {
	case ca.EndAttempt:
		if out.Final || h.desk.denied(uid) > deniedFor {
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
	case err == nil:
		return resultIssued
	case errors.As(err, &signer.PermanentError{}):
		return resultFailed
	case errors.As(err, &signer.IssuerError{}):
		return resultNotReady
	}
	return resultPending
}

// troubles are errors about authorities, for the issuers that name them.
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
