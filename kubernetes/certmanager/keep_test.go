package certmanager

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
)

// large has a megabyte of everything that its owner may fill.
func large() *request {
	ballast := strings.Repeat("x", 1<<20)
	r := honest()
	r.Annotations, r.Labels, r.Finalizers = map[string]string{"a": ballast}, map[string]string{"l": ballast}, []string{ballast}
	r.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(ballast)}}
	r.Spec.Request = append(r.Spec.Request, ballast...)
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = ballast, ballast, []string{ballast}, map[string][]string{"x": {ballast}}
	r.Spec.IssuerRef.Name, r.Spec.IssuerRef.Kind = ballast, ballast
	r.Status.Certificate, r.Status.CA = []byte(ballast), []byte(ballast)
	for n := range 10000 {
		r.Spec.Usages = append(r.Spec.Usages, cmapi.UsageServerAuth)
		r.Status.Conditions = append(r.Status.Conditions, condition(fmt.Sprint(n), "True", ballast[:100]))
	}
	r.Status.Conditions = append(r.Status.Conditions, condition("Ready", "False", ballast))
	return r
}

func TestCacheKeepsNoContentOfRequests(t *testing.T) {
	kept, err := trim(large())
	must(t, err)
	r := kept.(*request)
	if text, err := json.Marshal(r); err != nil || len(text) > 3<<10 {
		t.Errorf("%d bytes are kept: %v", len(text), err)
	}
	if !open(r) || r.UID != honest().UID || nameOf(r) != nameOf(honest()) {
		t.Errorf("%+v lacks what decides whether there is anything to do", r)
	}
}

func TestWaitingRequestKeepsOnlyWhatDecides(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.api.all[nameOf(honest())] = large()
		var kept request
		must(t, fairClient{h.api, h.Door, signing.NewSlots()}.Get(h.ctx, nameOf(honest()), &kept))
		if text, err := json.Marshal(kept); err != nil || len(text) > base64.StdEncoding.EncodedLen(ra.MaxCSR)+4<<10 {
			t.Errorf("%d bytes are kept: %v", len(text), err)
		}
		if cap(kept.Spec.Request) > 2*ra.MaxCSR || len(kept.Spec.Usages) != 1 {
			t.Errorf("the CSR has %d bytes, %d usages", cap(kept.Spec.Request), len(kept.Spec.Usages))
		}
		whole := *needed(honest())
		if !bytes.Equal(whole.Spec.Request, honest().Spec.Request) || whole.Spec.Duration.Duration != honest().Spec.Duration.Duration {
			t.Error("a usual request has lost its CSR or its duration")
		}
	})
}
