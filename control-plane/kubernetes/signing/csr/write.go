package csr

import (
	"context"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/certificates/v1"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/signing"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ra"
)

// firstWait and longestWait bound the waits between two writes of a certificate.
const firstWait, longestWait = time.Second, 20 * time.Second

// reasonGranted is the reason of our approvals.
const reasonGranted = "CountersignPolicy"

// errOver means that nothing is left to do: the request is gone, or all is said about it.
var errOver = errors.New("the request is deleted or finished")

// approve says that the policy grants the request, and returns it with that.
func (d *Door) approve(ctx context.Context, live *request, rule string) (approved *request, err error) {
	next := withCondition(live, certificatesv1.CertificateApproved, reasonGranted, fmt.Sprintf("the policy's rule %.256q grants the requester these names", rule), d.cfg.Now())
	err = d.writes.Do(ctx, owner(live), func(ctx context.Context) error {
		approved, err = d.requests().UpdateApproval(ctx, next.Name, next, metav1.UpdateOptions{})
		return err
	})
	if err = over(err); err != nil {
		return live, fmt.Errorf("cannot approve the request: %w", err)
	}
	d.observe(live, resultApproved)
	return approved, nil
}

// refuse writes a final word on a live request: Denied if it is not approved, and Failed if it is.
func (d *Door) refuse(ctx context.Context, live *request, no *refusal) error {
	kind, result, write := certificatesv1.CertificateDenied, resultDenied, d.requests().UpdateApproval
	if has(live, certificatesv1.CertificateApproved) {
		kind, result = certificatesv1.CertificateFailed, resultFailed
		write = func(ctx context.Context, _ string, r *request, o metav1.UpdateOptions) (*request, error) {
			return d.requests().UpdateStatus(ctx, r, o)
		}
	}
	next := withCondition(live, kind, no.reason, no.message, d.cfg.Now())
	err := d.write(ctx, live, func(ctx context.Context) error {
		_, err := write(ctx, next.Name, next, metav1.UpdateOptions{}) // a conflict if it is not the live one any more
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot write that the request is refused: %w", err)
	}
	d.observe(live, result)
	d.cfg.Log.Info("certificate signing request refused", "request", text.Clean(live.Name), "requester", text.Clean(live.Spec.Username),
		"signer", live.Spec.SignerName, "condition", kind, "reason", no.reason, "message", text.Clean(no.message))
	return nil
}

// deliver writes a certificate into the status. Whatever the API server says, it tries again with
// the same certificate, as another would cost another one.
func (d *Door) deliver(ctx context.Context, live *request, cert ra.Certificate) error {
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		err := d.put(ctx, live, cert)
		if apierrors.IsConflict(err) {
			live, err = d.newer(ctx, live, err)
		}
		over := errors.Is(err, errOver) || err != nil && ctx.Err() != nil
		if !over {
			d.gates[live.Spec.SignerName].Wrote(owner(live), live.UID, err)
		}
		switch {
		case err == nil:
			d.observe(live, resultIssued)
			return nil
		case over, !d.cfg.Now().Before(cert.NotAfter):
			d.observe(live, resultUndelivered)
			d.cfg.Log.Warn("a certificate could not be written into its request", "request", text.Clean(live.Name), "error", text.Clean(err.Error()))
			return nil
		}
		d.cfg.Log.Warn("cannot write the certificate into the request, trying again", "request", text.Clean(live.Name), "error", text.Clean(err.Error()))
		signing.Sleep(ctx, wait)
	}
}

// newer returns the request in its latest version if it can be had, and why nothing is written yet.
func (d *Door) newer(ctx context.Context, live *request, conflict error) (*request, error) {
	next, err := d.current(ctx, live)
	switch {
	case errors.Is(err, errOver):
		return live, err
	case err != nil:
		return live, conflict
	}
	return next, conflict
}

// put writes the certificate into the request in the version that it has.
func (d *Door) put(ctx context.Context, live *request, cert ra.Certificate) error {
	next := live.DeepCopy()
	next.Status.Certificate = cert.Chain
	return d.write(ctx, live, func(ctx context.Context) error {
		_, err := d.requests().UpdateStatus(ctx, next, metav1.UpdateOptions{})
		return err
	})
}

// write makes a call that ends the work on a request.
func (d *Door) write(ctx context.Context, r *request, f func(context.Context) error) error {
	return over(d.writes.Do(ctx, owner(r), func(ctx context.Context) error {
		ctx, cancel := signing.Linger(ctx)
		defer cancel()
		return f(ctx)
	}))
}

// current returns the live request, or errOver.
func (d *Door) current(ctx context.Context, r *request) (live *request, err error) {
	err = d.reads.Do(ctx, owner(r), func(ctx context.Context) error {
		live, err = d.requests().Get(ctx, r.Name, metav1.GetOptions{})
		return err
	})
	switch err = over(err); {
	case err != nil:
		return nil, err
	case live.UID != r.UID || finished(live):
		return nil, errOver
	}
	return live, nil
}

func (d *Door) requests() typed.CertificateSigningRequestInterface {
	return d.cfg.Client.CertificatesV1().CertificateSigningRequests()
}

// over turns "not found" into errOver.
func over(err error) error {
	if apierrors.IsNotFound(err) {
		return errOver
	}
	return err
}

func withCondition(r *request, kind certificatesv1.RequestConditionType, reason, message string, now time.Time) *request {
	next := r.DeepCopy()
	next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: metav1.NewTime(now),
	})
	return next
}
