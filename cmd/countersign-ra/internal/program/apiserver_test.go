package program

import (
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// object is any Kubernetes object.
type object = kubetest.Object

// apiServer stands in for a cluster's. It reviews the tokens that it was given.
type apiServer struct {
	*kubetest.FakeServer
	away atomic.Bool                   // it answers 503
	rude atomic.Bool                   // it refuses each status
	late atomic.Pointer[chan struct{}] // what its client CAs wait for; nil: nothing

	mu     sync.Mutex
	tokens map[string]bound
}

// bound is what the server knows about a token of the service account web of shop, or of
// another.
type bound struct{ namespace, account, pod string }

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	f := kubetest.NewFake()
	s := &apiServer{tokens: map[string]bound{}}
	f.SelectsAccounts, f.Token, f.Before, f.Answers["tokenreviews"] = true, "ours", s.before, s.review
	s.FakeServer = f.Listen(t)
	f.Put(object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"namespace": "kube-system", "name": "extension-apiserver-authentication"}, "data": object{}})
	return s
}

func (s *apiServer) before(c *kubetest.Call) error {
	if late := s.late.Load(); late != nil && c.Resource == "configmaps" && c.Namespace == "kube-system" {
		<-*late
	}
	switch {
	case s.away.Load():
		return apierrors.NewServiceUnavailable("as the test says")
	case c.Subresource == "status" && s.rude.Load():
		return apierrors.NewForbidden(schema.GroupResource{Resource: c.Resource}, c.Name, nil)
	}
	return nil
}

func (s *apiServer) kubeconfig() string { return string(s.Kubeconfig("")) }

// get returns an object; nil if there is none.
func (s *apiServer) get(resource, namespace, name string) object {
	if o := kubetest.Get[object](s.Fake, resource, namespace, name); o != nil {
		return *o
	}
	return nil
}

// review answers for tokens whose audience is istio-ca.
func (s *apiServer) review(o object) any {
	token, _ := o.At("spec", "token").(string)
	s.mu.Lock()
	b, known := s.tokens[token]
	s.mu.Unlock()
	o["status"] = b.status(known)
	return o
}

func (b bound) status(known bool) object {
	if !known {
		return object{"authenticated": false, "error": "invalid bearer token"}
	}
	extra := object{}
	if b.pod != "" {
		extra["authentication.kubernetes.io/pod-name"], extra["authentication.kubernetes.io/pod-uid"] = []string{b.pod}, []string{"p-" + b.pod}
	}
	return object{"authenticated": true, "audiences": []string{"istio-ca"}, "user": object{
		"username": "system:serviceaccount:" + b.namespace + ":" + b.account, "uid": "s", "extra": extra,
		"groups": []string{"system:serviceaccounts", "system:serviceaccounts:" + b.namespace},
	}}
}

// addToken adds a token, and the pod that it is bound to, unless that has no name.
func (s *apiServer) addToken(token string, b bound, node string) {
	s.mu.Lock()
	s.tokens[token] = b
	s.mu.Unlock()
	if b.pod != "" {
		s.Put(object{
			"apiVersion": "v1", "kind": "Pod", "metadata": object{"namespace": b.namespace, "name": b.pod, "uid": "p-" + b.pod},
			"spec": object{"nodeName": node, "serviceAccountName": b.account}, "status": object{"phase": "Running"},
		})
	}
}
