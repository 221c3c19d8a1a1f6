package kubestore_test

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

func TestCheckNamesWhatTheStoreLacks(t *testing.T) {
	for title, c := range map[string]struct {
		without, says string
		missing, away bool
	}{
		"all is well":   {},
		"a right":       {without: "update leases", says: "lacks the rights to update leases in the namespace certificates"},
		"rights":        {without: "get secrets,watch secrets", says: "lacks the rights to get, watch secrets"},
		"no namespace":  {missing: true, says: "the namespace certificates is missing"},
		"no API server": {away: true, says: "unavailable: 127.0.0.1 cannot be reached: no route to host"},
	} {
		fake := kubetest.NewFake()
		fake.Answers["selfsubjectaccessreviews"] = func(o kubetest.Object) any {
			review := kubetest.As[authorizationv1.SelfSubjectAccessReview](o)
			asked := review.Spec.ResourceAttributes
			denied := strings.Contains(c.without, asked.Verb+" "+asked.Resource)
			review.Status.Allowed = !denied && asked.Namespace == namespace && (asked.Group == "") == (asked.Resource == "secrets")
			return review
		}
		fake.Before = func(call *kubetest.Call) error {
			if call.Resource == "leases" && call.Verb == "create" && c.missing {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace)
			}
			return nil
		}
		m := newMachine(t, fake, nil)
		m.away.Store(c.away)
		err := m.Check(t.Context())
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "unavailable: unavailable")) {
			t.Errorf("%s: %v, want %q", title, err, c.says)
		}
	}
}
