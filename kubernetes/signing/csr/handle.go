package csr

import (
	"context"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// longestPause bounds the waits, which grow with the age of a request. Spread, it is less than the
// minute for which the engine keeps a certificate.
const longestPause = 40 * time.Second

// handle works on one request and returns when to come back to it; zero: when it changes. All but
// the request's name and UID comes from the live object.
func (d *Door) handle(ctx context.Context, seen *request) time.Duration {
	live, err := d.current(ctx, seen)
	if err == nil {
		err = d.serve(ctx, live)
	}
	if err == nil || errors.Is(err, signing.ErrOver) || ctx.Err() != nil {
		return 0 // done, deleted, or no longer ours to decide
	}
	return d.pending(seen, err)
}

// serve takes a request as far as it goes.
func (d *Door) serve(ctx context.Context, live *request) error {
	if !d.open(live) {
		return nil
	}
	order, err := d.judge(ctx, live)
	if err == nil { // before the lookups, but a trial is for one who passed them
		err = d.gates[live.Spec.SignerName].Check(owner(live))
	}
	if err == nil {
		err = recorded(ctx, order, d.verify(ctx, live, order.Subject))
	}
	if err == nil && !has(live, certificatesv1.CertificateApproved) {
		live, err = d.approve(ctx, live, order.Decision().Rule)
	}
	var cert ra.Certificate
	if err == nil {
		cert, err = d.issue(ctx, live, order)
	}
	if no, final := signing.Refused(err); final {
		return d.refuse(ctx, live, no)
	}
	if err != nil {
		return err
	}
	d.deliver(ctx, live, order, cert)
	return nil
}

// verify compares a service account, and the pod that its token was bound to, with the live ones.
// What is gone may come back with another UID, and leaves the request pending; with another UID, it
// is not who asked.
func (d *Door) verify(ctx context.Context, r *request, s ra.Subject) error {
	if s.Kind != ra.ServiceAccount {
		return nil
	}
	if err := lookUp(ctx, d, r, "service account", s.ServiceAccount, s.ServiceAccountUID, d.cfg.Client.CoreV1().ServiceAccounts(s.Namespace).Get); err != nil {
		return err
	}
	if s.Pod == "" {
		return nil
	}
	return lookUp(ctx, d, r, "pod", s.Pod, s.PodUID, d.cfg.Client.CoreV1().Pods(s.Namespace).Get)
}

func lookUp[T metav1.Object](ctx context.Context, d *Door, r *request, kind, name, uid string, get func(context.Context, string, metav1.GetOptions) (T, error)) error {
	var found T
	err := d.reads.Do(ctx, owner(r), func(ctx context.Context) (err error) {
		found, err = get(ctx, name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return &signing.PendingError{Again: signing.Spread(signing.RetryGone), Err: fmt.Errorf("the requester's %s is gone: %w", kind, err)}
	case err != nil:
		return fmt.Errorf("cannot look up the requester's %s: %w", kind, err)
	case string(found.GetUID()) != uid:
		return signing.Refuse(reasonRequester, "the %s %.253q was made anew: it has the UID %.128q, and the requester had %.128q", kind, name, found.GetUID(), uid)
	}
	return nil
}

// issue returns a certificate, a refusal, or an error that leaves the request pending.
func (d *Door) issue(ctx context.Context, r *request, o *ra.Order) (ra.Certificate, error) {
	cert, err := d.gates[r.Spec.SignerName].Issue(ctx, d.cfg.Issuer, owner(r), o, d.dryRun(r))
	if err == nil || errors.Is(err, signing.ErrShut) {
		return cert, err
	}
	return cert, outcome(err)
}

func outcome(err error) error {
	out := signing.OutcomeOf(err)
	switch {
	case !out.Final:
		return &signing.PendingError{Again: out.Again, Err: err, Quiet: true} // the engine logs and audits it
	case out.KeyType:
		return signing.Refuse(reasonKeyType, "%s", out.Message)
	case out.Names:
		return signing.Refuse(reasonNames, "%s", out.Message)
	case out.Usages:
		return signing.Refuse(reasonUsages, "%s", out.Message)
	case errors.Is(err, ca.ErrDenied):
		return signing.Refuse(reasonPolicy, "the policy for this signer does not grant the request: %s", out.Message)
	}
	return signing.Refuse(reasonCSR, "%s", out.Message)
}

// pending returns how long a request waits, longer the older it is: one client may make thousands of
// requests that all have to wait, and each look costs calls.
func (d *Door) pending(r *request, err error) time.Duration {
	least := signing.Spread(min(d.cfg.Now().Sub(r.CreationTimestamp.Time)/10, longestPause))
	return d.cfg.Pending(r.Name, r.Spec.SignerName, err, least)
}

func (d *Door) observe(r *request, result string) {
	d.cfg.Observe(signing.Event{Signer: r.Spec.SignerName, Result: result})
}

func doorOf(r *request) string { return signing.CSRDoor(r.Spec.SignerName).Name }
