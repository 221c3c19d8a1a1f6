package certmanager

import (
	"bytes"
	"context"
	"errors"
	"time"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/issuer-lib/controllers/signer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// hold is how long Sign waits for a certificate. Most are issued within that time, which saves
	// the status update for a pending request.
	hold = 2 * time.Second
	// lookAgain bounds how late a waiting request follows its issuer to another authority.
	lookAgain = 5 * time.Minute
)

// notReady bounds the waits of a certificate whose issuer is not ready.
var notReady = rotation.Row{First: time.Second, Most: lookAgain}

// errAtWork means that there is no answer yet. The handler waits for it.
var errAtWork = errors.New("the request is with the authority, or waits for its turn")

// Why a certificate is withheld.
var (
	errGone    = errors.New("the request was deleted or failed before its certificate was written")
	errChanged = errors.New("the request or its issuer has changed since the certificate was requested")
	errExpired = ca.Errorf(ca.Unavailable, "the certificate expired before it could be delivered")
	errOver    = errors.New("the leader session ended before the certificate was written")
)

// task is one call of the handler for a request. Only the handler's goroutine uses it.
type task struct {
	ctx     context.Context // ends when the request is deleted, finished, or left to the next leader
	uid     types.UID
	call    *call // nil: nothing is requested from an authority
	judged  bool  // issuer-lib has called Sign now, as the issuer is ready
	gives   bool  // issuer-lib has the certificate now, and is about to write it
	gave    bool  // it had it before
	written bool
	version string // of the request, as issuer-lib read it last
}

// call requests the certificate for an order.
type call struct {
	order     *ra.Order
	authority string
	end       context.CancelFunc
	over      chan struct{} // closed when cert and err are set
	cert      ra.Certificate
	err       error
}

// taskKey is the key of a task in the context of issuer-lib's calls.
type taskKey struct{}

func taskOf(ctx context.Context) *task {
	t, _ := ctx.Value(taskKey{}).(*task)
	return t
}

// handle works on a request until its certificate is written, and returns when to come back to it.
// issuer-lib reads the request, checks its issuer, calls [hooks.sign] and writes the status.
func (h *hooks) handle(ctx context.Context, seen *cmapi.CertificateRequest) time.Duration {
	t := &task{ctx: ctx, uid: seen.UID}
	defer func() { h.withhold(t, h.whyItEnds()) }()
	for waits := (rotation.Waits{}); ; {
		result, err := h.look(t, seen)
		h.giveUp(t)
		switch c := t.call; {
		case t.written:
			h.delivered(t, seen)
			return signing.Over
		case ctx.Err() != nil:
			if t.gave && h.shownAsIssued(seen) { // the reply to a write was lost
				h.delivered(t, seen)
			}
			return 0
		case c == nil && errors.Is(err, reconcile.TerminalError(nil)):
			return signing.Spread(signing.RetryCall) // if the refusal was not written; logged already
		case c == nil && err != nil:
			return h.cfg.Pending(nameOf(seen).String(), "", err, 0)
		case c == nil:
			return result.RequeueAfter
		case !c.isOver():
			c.wait(ctx, lookAgain)
		case err == nil && !t.judged:
			signing.Sleep(ctx, waits.Next(notReady))
		default: // it could not be written
			signing.Sleep(ctx, waits.Next(signing.Rewrites))
		}
	}
}

// look has issuer-lib reconcile the request once.
func (h *hooks) look(t *task, seen *cmapi.CertificateRequest) (reconcile.Result, error) {
	t.gives, t.judged = false, false
	return h.reconcile(context.WithValue(t.ctx, taskKey{}, t), reconcile.Request{NamespacedName: nameOf(seen)})
}

// giveUp ends a call whose answer cannot be used: it failed, or its certificate has expired, while the
// issuer is not ready. The request rests until the issuer is.
func (h *hooks) giveUp(t *task) {
	c := t.call
	if c == nil || t.judged || t.written || !c.isOver() {
		return
	}
	if c.err != nil || !h.cfg.Now().Before(c.cert.NotAfter) {
		h.withhold(t, errExpired)
	}
}

// delivered notes that a certificate was written.
func (h *hooks) delivered(t *task, seen *cmapi.CertificateRequest) {
	authority := t.call.authority
	t.call = nil
	h.gates[authority].Wrote(seen.Namespace, seen.UID, nil)
	h.cfg.Observe(signing.Event{Signer: authority, Result: signing.ResultIssued})
}

// shownAsIssued reports whether the cache has the request with a certificate. One that is not synced when
// the session ends never is.
func (h *hooks) shownAsIssued(r *cmapi.CertificateRequest) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var now cmapi.CertificateRequest
	err := h.cached.Get(ctx, nameOf(r), &now)
	return err == nil && now.UID == r.UID && issued(&now)
}

// whyItEnds returns why a certificate was not written when the handler returns.
func (h *hooks) whyItEnds() error {
	if h.ctx.Err() != nil {
		return errOver
	}
	return errGone
}

// certify returns the certificate for a request, an error, or errAtWork.
func (h *hooks) certify(ctx context.Context, cr signer.CertificateRequestObject, authority string) (ra.Certificate, error) {
	t := taskOf(ctx)
	t.judged = true
	if t.call != nil && !t.call.isFor(cr, authority) {
		h.withhold(t, errChanged)
	}
	if t.call == nil {
		order, err := h.judge(ctx, cr, authority)
		if err != nil {
			return ra.Certificate{}, err
		}
		t.call = h.begin(t.ctx, nameOf(cr), order, authority)
	}
	c := t.call
	c.wait(ctx, hold)
	switch {
	case !c.isOver():
		return ra.Certificate{}, errAtWork
	case c.err != nil:
		t.call = nil
		return ra.Certificate{}, c.err
	case !h.cfg.Now().Before(c.cert.NotAfter):
		h.withhold(t, errExpired)
		return ra.Certificate{}, errExpired
	}
	return c.cert, nil
}

// begin requests a certificate, unless it could not be delivered.
func (h *hooks) begin(ctx context.Context, request types.NamespacedName, order *ra.Order, authority string) *call {
	ctx, end := context.WithCancel(ctx)
	c := &call{order: order, authority: authority, end: end, over: make(chan struct{})}
	go func() {
		defer close(c.over)
		c.cert, c.err = h.gates[authority].Issue(ctx, h.cfg.Issuer, request.Namespace, order, func(ctx context.Context) error {
			return h.writes.Status().Patch(ctx, &cmapi.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name}}, client.RawPatch(types.MergePatchType, []byte("{}")), client.DryRunAll)
		})
	}()
	return c
}

// withhold ends the call of a task. A certificate that it returned is not delivered.
func (h *hooks) withhold(t *task, why error) {
	c := t.call
	if c == nil {
		return
	}
	t.call, t.gave = nil, false
	c.end()
	<-c.over
	if c.err == nil {
		c.order.Withhold(t.ctx, c.cert, why)
		h.cfg.Observe(signing.Event{Signer: c.authority, Result: signing.ResultUndelivered})
	}
}

func (c *call) isFor(cr signer.CertificateRequestObject, authority string) bool {
	details, err := cr.GetCertificateDetails()
	return err == nil && authority == c.authority && bytes.Equal(details.CSR, c.order.CSR)
}

func (c *call) isOver() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// wait returns when there is an answer, after the time, or when ctx ends.
func (c *call) wait(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-c.over:
	case <-timer.C:
	case <-ctx.Done():
	}
}
