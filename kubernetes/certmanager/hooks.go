package certmanager

import (
	"context"
	"fmt"

	cmutil "github.com/cert-manager/cert-manager/pkg/api/util"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	issuerapi "github.com/cert-manager/issuer-lib/api/v1alpha1"
	"github.com/cert-manager/issuer-lib/controllers/signer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
)

// hooks are what issuer-lib calls, for one run of the door.
type hooks struct {
	*Door
	desk     *desk
	live     client.Reader // without a cache
	cached   client.Reader // what the events were about that are sent to the desk
	troubles troubles
}

// check says whether an issuer is ready: it names an authority that it may use, and no request has
// just shown that this cannot sign. Nothing it says is permanent, as a configuration can change.
func (h *hooks) check(_ context.Context, issuer issuerapi.Issuer) error {
	authority, err := h.authorityOf(issuer)
	if err != nil {
		return err
	}
	return h.troubles.of(authority)
}

// ignore reports whether there is nothing to do for the live request: what comes from the cache may
// be finished or gone. That costs a certificate, and its status would be written over.
func (h *hooks) ignore(ctx context.Context, cr signer.CertificateRequestObject, _ schema.GroupVersionKind, _ types.NamespacedName) (bool, error) {
	live, open, err := h.read(ctx, h.live, cr)
	if err != nil || !open {
		return err == nil, err
	}
	return !cmutil.CertificateRequestIsApproved(live) || cmutil.CertificateRequestIsDenied(live), nil
}

// read returns a request as it is now, and whether it is open. One that is not is dropped.
func (h *hooks) read(ctx context.Context, from client.Reader, cr signer.CertificateRequestObject) (now *cmapi.CertificateRequest, open bool, err error) {
	now = &cmapi.CertificateRequest{}
	err = from.Get(ctx, nameOf(cr), now)
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		return nil, false, fmt.Errorf("read the live request: %w", err)
	}
	if gone || now.UID != cr.GetUID() || finished(now) {
		h.desk.drop(cr.GetUID(), !gone && now.UID == cr.GetUID() && issued(now))
		return nil, false, nil
	}
	return now, true, nil
}

func nameOf(cr signer.CertificateRequestObject) types.NamespacedName {
	return types.NamespacedName{Namespace: cr.GetNamespace(), Name: cr.GetName()}
}

// issued reports whether a request has its certificate.
func issued(cr *cmapi.CertificateRequest) bool {
	ready := cmutil.GetCertificateRequestCondition(cr, cmapi.CertificateRequestConditionReady)
	return ready != nil && ready.Status == cmmeta.ConditionTrue
}

// finished reports whether all is said about a request.
func finished(cr *cmapi.CertificateRequest) bool {
	ready := cmutil.GetCertificateRequestCondition(cr, cmapi.CertificateRequestConditionReady)
	return issued(cr) || ready != nil &&
		(ready.Reason == cmapi.CertificateRequestReasonFailed || ready.Reason == cmapi.CertificateRequestReasonDenied)
}

// sign gets the certificate for a request that is approved and whose issuer is ready.
func (h *hooks) sign(ctx context.Context, cr signer.CertificateRequestObject, issuer issuerapi.Issuer) (signer.PEMBundle, error) {
	authority, err := h.authorityOf(issuer)
	if err != nil {
		return signer.PEMBundle{}, h.answer(cr, "", signer.IssuerError{Err: err})
	}
	cert, err := h.certify(ctx, cr, authority)
	if err != nil {
		err = h.errorOf(cr.GetUID(), err)
	}
	// It may have ended since it was read live. If the event came before the desk had the request,
	// the cache shows it by now; if not, the event drops it.
	_, _, _ = h.read(ctx, h.cached, cr)
	if err != nil {
		return signer.PEMBundle{}, h.answer(cr, authority, err)
	}
	_ = h.answer(cr, authority, nil)
	return signer.PEMBundle{ChainPEM: cert.Chain, CAPEM: cert.Roots.PEM()}, nil
}

func (h *hooks) certify(ctx context.Context, cr signer.CertificateRequestObject, authority string) (ra.Certificate, error) {
	o, err := h.judge(ctx, cr, authority)
	if err != nil {
		return ra.Certificate{}, err
	}
	return h.desk.ask(ctx, nameOf(cr), o)
}

// answer tells the outcome to whom it may concern, and returns it.
func (h *hooks) answer(cr signer.CertificateRequestObject, authority string, err error) error {
	result := resultOf(err)
	h.troubles.note(authority, err)
	h.cfg.Observe(signing.Event{Signer: authority, Result: result})
	switch result {
	case resultFailed:
		h.cfg.Log.Info("certificate request refused", "namespace", cr.GetNamespace(), "request", text.Clean(cr.GetName()), "authority", authority, "message", text.Clean(err.Error()))
	case resultNotReady:
		h.cfg.Log.Warn("issuer not ready", "namespace", cr.GetNamespace(), "request", text.Clean(cr.GetName()), "authority", authority, "error", text.Clean(err.Error()))
	}
	return err
}
