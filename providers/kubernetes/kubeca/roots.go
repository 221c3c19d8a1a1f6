package kubeca

import (
	"cmp"
	"context"
	"net/http"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/provider/chain"
)

// publishesRoots reports whether the settings name a source of roots. Otherwise they come with
// each CertificateRequest.
func (s Settings) publishesRoots() bool {
	return s.BundleFile != "" || s.ConfigMap != nil || s.ClusterTrustBundle != ""
}

// Roots implements [ca.RootSource]. The host asks at intervals, so that it notices a changed
// root. Where the settings name no place, roots come with each certificate, and the error is
// [ca.Unimplemented].
func (c *CA) Roots(ctx context.Context) ([]byte, error) {
	switch {
	case !c.settings.publishesRoots():
		return nil, ca.Errorf(ca.Unimplemented, "the roots come with each certificate of the issuer")
	case c.settings.BundleFile != "":
		bundle, err := c.settings.BundleFile.Bundle()
		if err != nil {
			return nil, ca.Errorf(ca.Unavailable, "bundle_file: %w", err)
		}
		return bundle.PEM(), nil
	}
	s, err := c.session("")
	if err != nil {
		return nil, err
	}
	defer s.close()
	if c.settings.ConfigMap != nil {
		return s.configMap(ctx, *c.settings.ConfigMap)
	}
	return s.trustBundle(ctx, c.settings.ClusterTrustBundle)
}

func (s *session) configMap(ctx context.Context, from ConfigMap) ([]byte, error) {
	var reply struct {
		Data map[string]string `json:"data"`
	}
	at := "/api/v1/namespaces/" + from.Namespace + "/configmaps/" + from.Name
	if err := s.Do(ctx, kubeapi.Call{Path: at}, &reply); err != nil {
		return nil, err
	}
	key := cmp.Or(from.Key, "ca.crt")
	text, ok := reply.Data[key]
	if !ok {
		return nil, ca.Errorf(ca.Unavailable, "the ConfigMap %s of the namespace %s has no key %s", from.Name, from.Namespace, key)
	}
	return chain.Roots([]byte(text))
}

// trustBundle asks for v1, and for what there was before Kubernetes 1.37.
func (s *session) trustBundle(ctx context.Context, name string) ([]byte, error) {
	var reply struct {
		Spec struct {
			TrustBundle string `json:"trustBundle"`
		} `json:"spec"`
	}
	const kind = "/clustertrustbundles/"
	err := s.Do(ctx, kubeapi.Call{Path: "/apis/certificates.k8s.io/v1" + kind + name}, &reply)
	if kubeapi.Answered(err, http.StatusNotFound) {
		if older := s.Do(ctx, kubeapi.Call{Path: "/apis/certificates.k8s.io/v1beta1" + kind + name}, &reply); !kubeapi.Answered(older, http.StatusNotFound) {
			err = older
		}
	}
	if err != nil {
		return nil, err
	}
	return chain.Roots([]byte(reply.Spec.TrustBundle))
}
