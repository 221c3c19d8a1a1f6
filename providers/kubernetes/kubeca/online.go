package kubeca

import (
	"context"
	"net/http"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// ValidateOnline asks the API server whether the credential has the rights that the provider
// uses, and reads the roots. Nothing is requested. The token of a request is not known here, so
// that its rights are not.
func (s Settings) ValidateOnline(ctx context.Context) []provider.Diagnostic {
	c, err := Open(s)
	if err != nil {
		return provider.Faults("", err)
	}
	if _, err := c.Roots(ctx); err != nil && ca.ReasonFor(err) != ca.Unimplemented {
		return provider.Faults("", err)
	}
	if s.UseRequestToken {
		return nil
	}
	session, err := c.session("")
	if err != nil {
		return provider.Faults("", err)
	}
	defer session.close()
	return s.checkRights(ctx, session)
}

// checkRights asks for each right.
func (s Settings) checkRights(ctx context.Context, to *session) (found []provider.Diagnostic) {
	group, resource, namespace := "certificates.k8s.io", "certificatesigningrequests", ""
	verbs := []string{"create", "get", "watch", "delete"}
	if s.Issuer != nil {
		group, resource, namespace = "cert-manager.io", "certificaterequests", to.namespace
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		verbs = append(verbs, "list")
	}
	for _, verb := range verbs {
		allowed, err := to.may(ctx, map[string]string{"group": group, "resource": resource, "namespace": namespace, "verb": verb})
		if err != nil {
			return append(found, provider.Faults("", err)...)
		}
		if !allowed {
			found = append(found, lacks(verb, resource))
		}
	}
	return found
}

// lacks is what a missing right means.
func lacks(verb, resource string) provider.Diagnostic {
	d := provider.Diagnostic{Summary: "the credential may not " + verb + " " + resource}
	switch verb {
	case "watch":
		d.Warning, d.Detail = true, "The provider asks for each request every few seconds instead."
	case "delete", "list":
		d.Warning, d.Detail = true, "Requests that are done stay until Kubernetes or an operator deletes them."
	}
	return d
}

// may asks the server about its caller, as each may.
func (s *session) may(ctx context.Context, attributes map[string]string) (bool, error) {
	review := map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": map[string]any{"resourceAttributes": attributes},
	}
	var reply struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	err := s.Do(ctx, kubeapi.Call{Method: http.MethodPost, Path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Body: review}, &reply)
	return reply.Status.Allowed, err
}
