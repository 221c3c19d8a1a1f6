package podcert

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
)

const (
	// maxChain is the API server's limit for a chain, in bytes of PEM.
	maxChain = 100 << 10
	// freshFor is how far the start of a certificate may lie from the API server's clock.
	freshFor = 5 * time.Minute
	// clockSkew is by how much that clock may differ from ours.
	clockSkew = 15 * time.Second
	// margin is the least time from a certificate's start to its refresh, and from that to its
	// end.
	margin = 10 * time.Minute
	// The refresh begins at a point drawn from this part of the lifetime, so that pods that
	// started together do not come back together, and a queue or an outage has almost half
	// of the lifetime.
	refreshFrom, refreshTo = 0.4, 0.6
	// again is how long a request waits whose certificate became too old to be written.
	again = time.Second
)

// deliver writes a certificate into the status, for as long as the API server could take it.
func (d *Door) deliver(ctx context.Context, r *request, o *ra.Order, cert ra.Certificate) error {
	if size := len(cert.Chain); size > maxChain {
		err := fmt.Errorf("the chain of authority %q has %d bytes of PEM, the API server takes %d", cert.Authority, size, maxChain)
		o.Withhold(ctx, cert, err)
		return d.undelivered(r, err, true)
	}
	status, end, refused := issued(cert, d.cfg.Now()), cert.NotBefore.Add(freshFor), false
	delivery := signing.Delivery{
		Gate: d.gates[r.Spec.SignerName], Owner: r.Namespace, UID: r.UID, Until: end, Now: d.cfg.Now,
		Has: func(ctx context.Context) bool { return d.hasChain(ctx, r, status.CertificateChain) },
		Retry: func(err error) {
			d.cfg.Log.Warn("cannot write the certificate into the request, trying again", "request", r.Namespace+"/"+r.Name, "error", clean(err))
		},
	}
	err := delivery.Do(ctx, func(ctx context.Context) error {
		err := d.write(ctx, r, status)
		refused = refused || apierrors.IsInvalid(err) && !signing.Forbidden(err) && d.cfg.Now().Add(clockSkew).Before(end)
		return err
	})
	if err != nil {
		o.Withhold(ctx, cert, err)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, signing.ErrOver) {
		return d.undelivered(r, err, refused)
	}
	result := signing.ResultIssued
	if err != nil { // the request is gone
		result = signing.ResultUndelivered
	}
	d.observe(r, result)
	return nil
}

// undelivered gives a certificate up. What is wrong with it, unless it is its age, would be wrong
// with the next one, which the request's successor will show; else another one is asked for.
func (d *Door) undelivered(r *request, err error, wrong bool) error {
	d.observe(r, signing.ResultUndelivered)
	d.cfg.Log.Error("a certificate could not be written into its request", "request", r.Namespace+"/"+r.Name, "error", clean(err))
	if wrong {
		return nil
	}
	return &signing.PendingError{Again: again, Err: err}
}

// refuse writes a final word, unless the live request is another than the one that was judged.
func (d *Door) refuse(ctx context.Context, r *request, no *signing.Refusal) error {
	live, err := d.current(ctx, r)
	if err == nil && !equality.Semantic.DeepEqual(trimmed(live).Spec, r.Spec) {
		err = errors.New("the request has changed since it was judged")
	}
	if err == nil {
		err = d.put(ctx, live, statusOf(no, d.cfg.Now()))
	}
	if errors.Is(err, signing.ErrOver) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot write that the request is refused: %w", err)
	}
	d.observe(r, strings.ToLower(no.Condition))
	d.cfg.Log.Info("pod certificate request refused", "request", r.Namespace+"/"+r.Name, "pod", r.Spec.PodName,
		"signer", r.Spec.SignerName, "condition", no.Condition, "reason", no.Reason, "message", clean(no))
	return nil
}

// write puts a certificate on the request as it was last seen, and if that is not the latest, on
// the live one, unless it is there: the answer to an earlier write may have been lost.
func (d *Door) write(ctx context.Context, r *request, status certificatesv1.PodCertificateRequestStatus) error {
	err := d.put(ctx, r, status)
	if !apierrors.IsConflict(err) {
		return err
	}
	live, err := d.current(ctx, r)
	switch {
	case isIssued(live, r, status.CertificateChain):
		return nil
	case err != nil:
		return err
	}
	return d.put(ctx, live, status)
}

// hasChain reports whether the live request has a chain.
func (d *Door) hasChain(ctx context.Context, r *request, chain string) bool {
	live, _ := d.current(ctx, r)
	return isIssued(live, r, chain)
}

func isIssued(live, r *request, chain string) bool {
	return live != nil && live.UID == r.UID && live.Status.CertificateChain == chain
}

// current returns the live request, with signing.ErrOver if there is nothing left to do about it.
func (d *Door) current(ctx context.Context, r *request) (live *request, err error) {
	err = d.writes.Do(ctx, r.Namespace, func(ctx context.Context) error {
		live, err = d.cfg.Client.CertificatesV1().PodCertificateRequests(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		return err
	})
	switch err = signing.Gone(err); {
	case err != nil:
		return nil, err
	case live.UID != r.UID || finished(live):
		return live, signing.ErrOver
	}
	return live, nil
}

// dryRun tries the write of a final status. The API server checks our rights for it as for a certificate's.
func (d *Door) dryRun(r *request) signing.DryRun {
	return func(ctx context.Context) error {
		no := &signing.Refusal{Condition: certificatesv1.PodCertificateRequestConditionTypeFailed, Reason: "DryRun", Message: "dry run"}
		return d.put(ctx, r, statusOf(no, d.cfg.Now()), metav1.DryRunAll)
	}
}

// statusOf is the status of a request that is refused.
func statusOf(no *signing.Refusal, now time.Time) certificatesv1.PodCertificateRequestStatus {
	return certificatesv1.PodCertificateRequestStatus{Conditions: []metav1.Condition{condition(no.Condition, no.Reason, no.Message, now)}}
}

// put updates the status of the request in the version that it has.
func (d *Door) put(ctx context.Context, r *request, status certificatesv1.PodCertificateRequestStatus, dryRun ...string) error {
	next := *r
	next.Status = status
	return d.writes.Finish(ctx, r.Namespace, func(ctx context.Context) error {
		_, err := d.cfg.Client.CertificatesV1().PodCertificateRequests(r.Namespace).UpdateStatus(ctx, &next, metav1.UpdateOptions{DryRun: dryRun})
		return err
	})
}

// issued is the status of a request with its certificate.
func issued(cert ra.Certificate, now time.Time) certificatesv1.PodCertificateRequestStatus {
	return certificatesv1.PodCertificateRequestStatus{
		Conditions: []metav1.Condition{condition(
			certificatesv1.PodCertificateRequestConditionTypeIssued, "Issued",
			fmt.Sprintf("issued for %.256s until %s", cert.Identity, clock.Stamp(cert.NotAfter)), now,
		)},
		CertificateChain: string(cert.Chain),
		NotBefore:        stamp(cert.NotBefore), NotAfter: stamp(cert.NotAfter), BeginRefreshAt: stamp(refreshAt(cert)),
	}
}

func condition(kind, reason, message string, now time.Time) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now)}
}

func stamp(t time.Time) *metav1.Time {
	at := metav1.NewTime(t)
	return &at
}

// refreshAt draws when the kubelet should ask for the next certificate, which it does up to 5
// minutes later. Certificates above the leaf may end before it.
func refreshAt(cert ra.Certificate) time.Time {
	life := min(cert.Ends.Sub(cert.NotBefore), cert.NotAfter.Sub(cert.NotBefore))
	part := refreshFrom + (refreshTo-refreshFrom)*rand.Float64()
	at := cert.NotBefore.Add(time.Duration(part * float64(life))).Truncate(time.Second)
	return clock.Later(clock.Earlier(at, cert.NotAfter.Add(-margin)), cert.NotBefore.Add(margin))
}

func clean(err error) string { return text.Clean(err.Error()) }
