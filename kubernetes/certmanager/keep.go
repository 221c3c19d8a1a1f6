package certmanager

import (
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/signing"
)

// trim leaves what decides whether there is anything to do. The rest is read live.
func trim(object any) (any, error) {
	cr, ok := object.(*cmapi.CertificateRequest)
	if !ok {
		return object, nil
	}
	return trimmed(cr), nil
}

func trimmed(cr *cmapi.CertificateRequest) *cmapi.CertificateRequest {
	small := &cmapi.CertificateRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: cr.Namespace, Name: cr.Name, UID: cr.UID, CreationTimestamp: cr.CreationTimestamp, ResourceVersion: cr.ResourceVersion,
	}}
	signing.NoteSize(small, cr, len(cr.Spec.Request))
	ref := cr.Spec.IssuerRef
	small.Spec.IssuerRef = cmmeta.IssuerReference{Group: signing.KeepName(ref.Group), Kind: signing.KeepName(ref.Kind), Name: signing.KeepName(ref.Name)}
	for _, c := range cr.Status.Conditions {
		switch c.Type {
		case cmapi.CertificateRequestConditionReady, cmapi.CertificateRequestConditionApproved, cmapi.CertificateRequestConditionDenied:
			small.Status.Conditions = append(small.Status.Conditions, cmapi.CertificateRequestCondition{
				Type: c.Type, Status: c.Status, Reason: signing.KeepName(c.Reason), LastTransitionTime: c.LastTransitionTime,
			})
		}
	}
	return small
}

// needed leaves what decides about a request. Its owner may add a megabyte of everything else.
func needed(cr *cmapi.CertificateRequest) *cmapi.CertificateRequest {
	small := trimmed(cr)
	small.Spec.Request = signing.KeepCSR(cr.Spec.Request)
	small.Spec.Duration, small.Spec.IsCA = cr.Spec.Duration, cr.Spec.IsCA
	small.Spec.Usages = signing.KeepUsages(cr.Spec.Usages)
	return small
}
