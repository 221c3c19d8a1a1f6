package kubestore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
)

// checkName is a name that no client can have.
const checkName = "check.invalid"

// uses are the rights that a Store needs in its namespace.
var uses = []struct {
	group, resource string
	verbs           []string
}{
	{"", "secrets", []string{"get", "list", "watch", "create", "update", "delete"}},
	{"coordination.k8s.io", "leases", []string{"get", "list", "create", "update", "delete"}},
}

// Check asks the API server whether the namespace is there and whether the credential has the rights
// that the store needs (SelfSubjectAccessReview). Nothing is stored. The error names each right that is
// missing.
func (s *Store) Check(ctx context.Context) error {
	var lacks []error
	for _, of := range uses {
		var denied []string
		for _, verb := range of.verbs {
			allowed, err := s.may(ctx, of.group, of.resource, verb)
			if err != nil {
				return err
			}
			if !allowed {
				denied = append(denied, verb)
			}
		}
		if len(denied) > 0 {
			lacks = append(lacks, ca.Errorf(ca.Denied, "the credential lacks the rights to %s %s in the namespace %s: add these verbs to its Role", strings.Join(denied, ", "), of.resource, s.cfg.Namespace))
		}
	}
	if len(lacks) > 0 {
		return errors.Join(lacks...)
	}
	return s.checkNamespace(ctx)
}

// may asks the API server about its caller.
func (s *Store) may(ctx context.Context, group, resource, verb string) (bool, error) {
	review := map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]string{"namespace": s.cfg.Namespace, "group": group, "resource": resource, "verb": verb}},
	}
	var reply struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	err := s.client.Do(ctx, kubeapi.Call{Method: http.MethodPost, Path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Body: review}, &reply)
	return reply.Status.Allowed, err
}

// checkNamespace has the API server check a Lease that it does not store. A list of a namespace that is
// missing is empty.
func (s *Store) checkNamespace(ctx context.Context) error {
	o := object{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease",
		Metadata: metadata{Name: objectName(checkName), Labels: labels(kindClaim), Annotations: map[string]string{nameNote: checkName}},
	}
	err := s.client.Do(ctx, kubeapi.Call{Method: http.MethodPost, Path: s.leases(), Query: url.Values{"dryRun": {"All"}}, Body: o}, nil)
	if kubeapi.Answered(err, http.StatusNotFound) {
		return fmt.Errorf("the namespace %s is missing: create it", s.cfg.Namespace)
	}
	return err
}
