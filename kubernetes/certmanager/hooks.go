package certmanager

import (
	"context"
	"slices"

	cmutil "github.com/cert-manager/cert-manager/pkg/api/util"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	issuerapi "github.com/cert-manager/issuer-lib/api/v1alpha1"
	"github.com/cert-manager/issuer-lib/controllers/signer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/certmanager/v1alpha1"
	"github.com/countersign-dev/countersign/kubernetes/signing"
)

// hooks are what issuer-lib calls, for one run of the door.
type hooks struct {
	*Door
	ctx       context.Context // of the run
	reconcile func(context.Context, reconcile.Request) (reconcile.Result, error)
	cached    client.Reader
	writes    client.StatusClient
	troubles  troubles
	denials   denials
}

// check returns an error if an issuer is not ready: it may not use the authority it names, or a recent
// request has shown that the authority cannot sign. No error is permanent, as a configuration can
// change.
func (h *hooks) check(_ context.Context, issuer issuerapi.Issuer) error {
	authority, err := h.authorityOf(issuer)
	if err != nil {
		return err
	}
	return h.troubles.of(authority)
}

// ignore reports whether issuer-lib must leave a live request alone that is approved and open.
func (h *hooks) ignore(ctx context.Context, cr signer.CertificateRequestObject, _ schema.GroupVersionKind, _ types.NamespacedName) (bool, error) {
	denied := slices.ContainsFunc(cr.GetConditions(), func(c metav1.Condition) bool {
		return c.Type == string(cmapi.CertificateRequestConditionDenied) && c.Status == metav1.ConditionTrue
	})
	return denied || cr.GetUID() != taskOf(ctx).uid, nil // the name may have another request by now
}

func nameOf(cr metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: cr.GetNamespace(), Name: cr.GetName()}
}

// issued reports whether a request has its certificate.
func issued(cr *cmapi.CertificateRequest) bool {
	ready := cmutil.GetCertificateRequestCondition(cr, cmapi.CertificateRequestConditionReady)
	return ready != nil && ready.Status == cmmeta.ConditionTrue
}

// finished reports whether a request has its final status.
func finished(cr *cmapi.CertificateRequest) bool {
	ready := cmutil.GetCertificateRequestCondition(cr, cmapi.CertificateRequestConditionReady)
	return issued(cr) || ready != nil &&
		(ready.Reason == cmapi.CertificateRequestReasonFailed || ready.Reason == cmapi.CertificateRequestReasonDenied)
}

// open reports whether there is anything to do about a request.
func open(cr *cmapi.CertificateRequest) bool {
	return cr.Spec.IssuerRef.Group == v1alpha1.GroupVersion.Group && !finished(cr) &&
		cmutil.CertificateRequestIsApproved(cr) && !cmutil.CertificateRequestIsDenied(cr)
}

// sign returns the certificate for a request that is approved and whose issuer is ready.
func (h *hooks) sign(ctx context.Context, cr signer.CertificateRequestObject, issuer issuerapi.Issuer) (signer.PEMBundle, error) {
	authority, err := h.authorityOf(issuer)
	if err != nil {
		return signer.PEMBundle{}, h.answer(cr, "", signer.IssuerError{Err: err})
	}
	cert, err := h.certify(ctx, cr, authority)
	if err != nil {
		return signer.PEMBundle{}, h.answer(cr, authority, h.errorOf(cr.GetUID(), err))
	}
	h.troubles.note(authority, nil)
	t := taskOf(ctx)
	t.gives, t.gave = true, true
	return signer.PEMBundle{ChainPEM: cert.Chain, CAPEM: cert.Roots.PEM()}, nil
}

// answer reports an error to operators, and returns it.
func (h *hooks) answer(cr signer.CertificateRequestObject, authority string, err error) error {
	result := resultOf(err)
	h.troubles.note(authority, err)
	h.cfg.Observe(signing.Event{Signer: authority, Result: result})
	switch result {
	case signing.ResultFailed:
		h.cfg.Log.Info("certificate request refused", "namespace", cr.GetNamespace(), "request", text.Clean(cr.GetName()), "authority", authority, "message", text.Clean(err.Error()))
	case signing.ResultNotReady:
		h.cfg.Log.Warn("issuer not ready", "namespace", cr.GetNamespace(), "request", text.Clean(cr.GetName()), "authority", authority, "error", text.Clean(err.Error()))
	}
	return err
}
