package csr

import (
	"bytes"
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/certificates/v1"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
)

// reasonGranted is the reason of our approvals.
const reasonGranted = "CountersignPolicy"

// approve writes that the policy grants the request, and returns the approved request.
func (d *Door) approve(ctx context.Context, r *request, rule string) (approved *request, err error) {
	err = d.writes.Do(ctx, owner(r), func(ctx context.Context) error {
		approved, err = d.change(ctx, r, func(ctx context.Context, live *request) (*request, error) {
			if has(live, certificatesv1.CertificateApproved) {
				return live, nil
			}
			setCondition(live, certificatesv1.CertificateApproved, reasonGranted, fmt.Sprintf("the policy's rule %.256q grants the requester these names", rule), d.cfg.Now())
			return d.requests().UpdateApproval(ctx, live.Name, live, metav1.UpdateOptions{})
		})
		return err
	})
	if err != nil {
		return r, fmt.Errorf("cannot approve the request: %w", err)
	}
	d.observe(r, signing.ResultApproved)
	return approved, nil
}

// refuse writes a final word on a request: Denied if it is not approved, and Failed if it is.
func (d *Door) refuse(ctx context.Context, r *request, no *signing.Refusal) error {
	kind, result := certificatesv1.CertificateDenied, signing.ResultDenied
	err := d.writes.Finish(ctx, owner(r), func(ctx context.Context) error {
		_, err := d.change(ctx, r, func(ctx context.Context, live *request) (*request, error) {
			if !has(live, certificatesv1.CertificateApproved) {
				setCondition(live, kind, no.Reason, no.Message, d.cfg.Now())
				return d.requests().UpdateApproval(ctx, live.Name, live, metav1.UpdateOptions{})
			}
			kind, result = certificatesv1.CertificateFailed, signing.ResultFailed
			setCondition(live, kind, no.Reason, no.Message, d.cfg.Now())
			return d.requests().UpdateStatus(ctx, live, metav1.UpdateOptions{})
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot write that the request is refused: %w", err)
	}
	d.observe(r, result)
	d.cfg.Log.Info("certificate signing request refused", "request", text.Clean(r.Name), "requester", text.Clean(r.Spec.Username),
		"signer", r.Spec.SignerName, "condition", kind, "reason", no.Reason, "message", text.Clean(no.Message))
	return nil
}

// deliver writes a certificate into the status, again after each error.
func (d *Door) deliver(ctx context.Context, r *request, o *ra.Order, cert ra.Certificate) {
	delivery := signing.Delivery{
		Gate: d.gates[r.Spec.SignerName], Owner: owner(r), UID: r.UID, Until: cert.NotAfter, Now: d.cfg.Now,
		Has: func(ctx context.Context) bool { return d.hasCertificate(ctx, r, cert) },
		Retry: func(err error) {
			d.cfg.Log.Warn("cannot write the certificate into the request, trying again", "request", text.Clean(r.Name), "error", text.Clean(err.Error()))
		},
	}
	err := delivery.Do(ctx, func(ctx context.Context) error { return d.put(ctx, r, cert) })
	if err == nil {
		d.observe(r, signing.ResultIssued)
		return
	}
	o.Withhold(ctx, cert, err)
	d.observe(r, signing.ResultUndelivered)
	d.cfg.Log.Warn("a certificate could not be written into its request", "request", text.Clean(r.Name), "error", text.Clean(err.Error()))
}

// put writes the certificate into the request.
func (d *Door) put(ctx context.Context, r *request, cert ra.Certificate) error {
	return d.writes.Finish(ctx, owner(r), func(ctx context.Context) error {
		_, err := d.change(ctx, r, func(ctx context.Context, live *request) (*request, error) {
			live.Status.Certificate = cert.Chain
			return d.requests().UpdateStatus(ctx, live, metav1.UpdateOptions{})
		})
		return err
	})
}

// dryRun tries the write of a final status. The API server checks our rights for it as for a certificate's.
func (d *Door) dryRun(r *request) signing.DryRun {
	return func(ctx context.Context) error {
		return d.writes.Finish(ctx, owner(r), func(ctx context.Context) error {
			_, err := d.change(ctx, r, func(ctx context.Context, live *request) (*request, error) {
				setCondition(live, certificatesv1.CertificateFailed, "DryRun", "dry run", d.cfg.Now())
				return d.requests().UpdateStatus(ctx, live, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			})
			return err
		})
	}
}

// hasCertificate reports whether the live request has the certificate.
func (d *Door) hasCertificate(ctx context.Context, r *request, cert ra.Certificate) (has bool) {
	_ = d.reads.Do(ctx, owner(r), func(ctx context.Context) error {
		live, err := d.requests().Get(ctx, r.Name, metav1.GetOptions{})
		has = err == nil && live.UID == r.UID && bytes.Equal(live.Status.Certificate, cert.Chain)
		return err
	})
	return has
}

// change reads the whole request and writes it, as a status keeps the metadata that it comes with.
// It returns what is needed of the result, or signing.ErrOver.
func (d *Door) change(ctx context.Context, r *request, write func(context.Context, *request) (*request, error)) (*request, error) {
	live, err := d.live(ctx, r)
	if err == nil {
		live, err = write(ctx, live)
	}
	if err != nil {
		return nil, signing.Gone(err)
	}
	return needed(live), nil
}

// live reads the whole request. It returns signing.ErrOver if nothing is left to do about it.
func (d *Door) live(ctx context.Context, r *request) (*request, error) {
	live, err := d.requests().Get(ctx, r.Name, metav1.GetOptions{})
	switch err = signing.Gone(err); {
	case err != nil:
		return nil, err
	case live.UID != r.UID || finished(live):
		return nil, signing.ErrOver
	}
	return live, nil
}

// current returns what is needed of the live request, or signing.ErrOver.
func (d *Door) current(ctx context.Context, r *request) (current *request, err error) {
	err = d.reads.Do(ctx, owner(r), func(ctx context.Context) error {
		live, err := d.live(ctx, r)
		if err == nil {
			current = needed(live)
		}
		return err
	})
	return current, err
}

func (d *Door) requests() typed.CertificateSigningRequestInterface {
	return d.cfg.Client.CertificatesV1().CertificateSigningRequests()
}

func setCondition(r *request, kind certificatesv1.RequestConditionType, reason, message string, now time.Time) {
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: metav1.NewTime(now),
	})
}
