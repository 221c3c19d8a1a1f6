package csr

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
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
		Groups: []string{ballast, "system:serviceaccounts:shop"}, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth},
		Extra: map[string]certificatesv1.ExtraValue{extraPod: {"pod"}, extraPodUID: {"uid"}, extraNode: {ballast}, extraNodeUID: {"uid", ballast}, "other": {ballast}},
	}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True", Message: ballast}}
	for n := range 10000 {
		name := fmt.Sprint(n)
		r.Spec.Groups = append(r.Spec.Groups, name)
		r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageServerAuth)
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.RequestConditionType(name)})
	}
	for _, small := range []*request{trimmed(r), trimmed(trimmed(r))} {
		if signing.Weight(small) != 9 {
			t.Errorf("a request with a CSR of 1 MiB weighs %d, want 9", signing.Weight(small))
		}
	}
	kept := needed(r)
	text, err := json.Marshal(kept)
	if most := base64.StdEncoding.EncodedLen(ra.MaxCSR) + 2<<10; err != nil || len(text) > most {
		t.Errorf("%d bytes are kept, want %d at most: %v", len(text), most, err)
	}
	if cap(kept.Spec.Request) > 2*ra.MaxCSR {
		t.Errorf("the whole request of %d bytes stays in memory", cap(kept.Spec.Request))
	}
	before, _ := SubjectOf("home", &r.Spec)
	after, err := SubjectOf("home", &kept.Spec)
	after.Node, before.Node = "", ""
	if after != before || err != nil || after.Pod != "pod" {
		t.Errorf("the subject was %+v, and is %+v: %v", before, after, err)
	}
	if !has(kept, certificatesv1.CertificateApproved) || owner(kept) != owner(r) {
		t.Errorf("%s lacks what decides", text)
	}
	r.Spec.Username = ballast
	if kept := needed(r); len(kept.Spec.Username) > 512 || kept.Spec.Username == "" {
		t.Errorf("the requester's name keeps %d bytes", len(kept.Spec.Username))
	}
}
