package csr

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server stores up to 1.5 MiB for a request, most of it by its requester's choice.
func TestWaitingRequestKeepsOnlyWhatDecides(t *testing.T) {
	ballast := strings.Repeat("x", 1<<20)
	r := &request{ObjectMeta: metav1.ObjectMeta{
		Name: "req", UID: "uid", Annotations: map[string]string{"a": ballast}, Labels: map[string]string{"l": ballast},
		Finalizers: []string{ballast}, ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(ballast)}},
	}}
	r.Spec = certificatesv1.CertificateSigningRequestSpec{
		Request: bytes.Repeat([]byte("x"), 1<<20), SignerName: "example.org/web", Username: "system:serviceaccount:shop:web", UID: "account",
		Groups: []string{"system:serviceaccounts:shop"}, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth},
		Extra: map[string]certificatesv1.ExtraValue{extraPod: {"pod"}, "other": {ballast}},
	}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True", Message: ballast}}
	kept := needed(r)
	text, err := json.Marshal(kept)
	if err != nil || len(text) > 2*maxCSR {
		t.Errorf("%d bytes are kept, %v", len(text), err)
	}
	if cap(kept.Spec.Request) > 2*maxCSR {
		t.Errorf("the whole request of %d bytes stays in memory", cap(kept.Spec.Request))
	}
	if !has(kept, certificatesv1.CertificateApproved) || kept.Spec.Extra[extraPod][0] != "pod" || owner(kept) != owner(r) {
		t.Errorf("%s lacks what decides", text)
	}
}
