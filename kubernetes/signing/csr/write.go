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

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
)

// reasonGranted is the reason of our approvals.
const reasonGranted = "CountersignPolicy"

// approve says that the policy grants the request, and returns it with that.
func (d *Door) approve(ctx context.Context, live *request, rule string) (approved *request, err error) {
	next := withCondition(live, certificatesv1.CertificateApproved, reasonGranted, fmt.Sprintf("the policy's rule %.256q grants the requester these names", rule), d.cfg.Now())
	err = d.writes.Do(ctx, owner(live), func(ctx context.Context) error {
		approved, err = d.requests().UpdateApproval(ctx, next.Name, next, metav1.UpdateOptions{})
		return err
	})
	if err = signing.Gone(err); err != nil {
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
	err := d.writes.Finish(ctx, owner(live), func(ctx context.Context) error {
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

// deliver writes a certificate into the status, whatever the API server says.
func (d *Door) deliver(ctx context.Context, live *request, o *ra.Order, cert ra.Certificate) {
	delivery := signing.Delivery{
		Gate: d.gates[live.Spec.SignerName], Owner: owner(live), UID: live.UID, Until: cert.NotAfter, Now: d.cfg.Now,
		Retry: func(err error) {
			d.cfg.Log.Warn("cannot write the certificate into the request, trying again", "request", text.Clean(live.Name), "error", text.Clean(err.Error()))
		},
	}
	err := delivery.Do(ctx, func(ctx context.Context) error {
		err := d.put(ctx, live, cert)
		if apierrors.IsConflict(err) {
			live, err = d.newer(ctx, live, err)
		}
		return err
	})
	if err == nil {
		d.observe(live, resultIssued)
		return
	}
	o.Withhold(ctx, cert, err)
	d.observe(live, resultUndelivered)
	d.cfg.Log.Warn("a certificate could not be written into its request", "request", text.Clean(live.Name), "error", text.Clean(err.Error()))
}

// newer returns the request in its latest version if it can be had, and why nothing is written yet.
func (d *Door) newer(ctx context.Context, live *request, conflict error) (*request, error) {
	next, err := d.current(ctx, live)
	switch {
	case errors.Is(err, signing.ErrOver):
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
	return d.writes.Finish(ctx, owner(live), func(ctx context.Context) error {
		_, err := d.requests().UpdateStatus(ctx, next, metav1.UpdateOptions{})
		return err
	})
}

// current returns the live request, or signing.ErrOver.
func (d *Door) current(ctx context.Context, r *request) (live *request, err error) {
	err = d.reads.Do(ctx, owner(r), func(ctx context.Context) error {
		live, err = d.requests().Get(ctx, r.Name, metav1.GetOptions{})
		return err
	})
	switch err = signing.Gone(err); {
	case err != nil:
		return nil, err
	case live.UID != r.UID || finished(live):
		return nil, signing.ErrOver
	}
	return live, nil
}

func (d *Door) requests() typed.CertificateSigningRequestInterface {
	return d.cfg.Client.CertificatesV1().CertificateSigningRequests()
}

func withCondition(r *request, kind certificatesv1.RequestConditionType, reason, message string, now time.Time) *request {
	next := r.DeepCopy()
	next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: metav1.NewTime(now),
	})
	return next
}
