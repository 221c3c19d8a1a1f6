//go:build e2e

package real_test

import (
	"context"
	"crypto/elliptic"
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
)

// The dry run of a write is refused for the same reason as the write, changes nothing, and needs no right of
// its own.
func TestRealMissingRightToSignCostsFewCertificates(t *testing.T) {
	o := open(t, kubetest.Start(t, kubetest.Options{Nodes: true}), ra.Limits{})
	o.Node("one")
	o.ServiceAccount("shop", "web")
	o.warmUp()
	restore := o.takeSign()
	first := o.askOf(0, 3)
	o.awaitShut("of its own owners", func(s signing.Shut) bool { return s.Forbidden && len(s.Owners) > 0 })
	asked := len(o.ca.Requests())
	next := o.askOf(3, 8)
	o.awaitShut("for all", func(s signing.Shut) bool { return s.Forbidden && len(s.Owners) == 0 })
	for _, r := range next.pods {
		now, err := o.Client().CertificatesV1().PodCertificateRequests(r.Namespace).Get(t.Context(), r.Name, metav1.GetOptions{})
		must(t, err)
		if kind, c := outcome(now); kind != "" {
			t.Errorf("a dry run wrote %+v", c)
		}
	}
	if n := len(o.ca.Requests()) - asked; n > 0 {
		t.Errorf("%d certificates more", n)
	}
	restore()
	o.awaitIssued(slices.Concat(first.pods, next.pods)...)
	for _, r := range slices.Concat(first.requests, next.requests) {
		kubetest.Await(t, "request "+r.Name+" is pending", func(ctx context.Context) (bool, error) {
			now, err := o.Client().CertificatesV1().CertificateSigningRequests().Get(ctx, r.Name, metav1.GetOptions{})
			return err == nil && len(now.Status.Certificate) > 0, err
		})
	}
}

// takeSign takes the right to sign away, and returns what gives it back. The API server's authorizer has seen
// it: a write that still succeeds would open the gate.
func (o *registrar) takeSign() (restore func()) {
	o.t.Helper()
	roles := o.Client().RbacV1().ClusterRoles()
	all, err := roles.List(o.t.Context(), metav1.ListOptions{})
	must(o.t, err)
	var before []rbacv1.ClusterRole
	for _, role := range all.Items {
		signs := func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, "signers") && slices.Contains(r.Verbs, "sign")
		}
		if role.Labels["kubernetes.io/bootstrapping"] != "" || !slices.ContainsFunc(role.Rules, signs) {
			continue
		}
		before = append(before, *role.DeepCopy())
		for i, rule := range role.Rules {
			role.Rules[i].Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool { return verb == "sign" && signs(rule) })
		}
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return len(r.Verbs) == 0 })
		_, err := roles.Update(o.t.Context(), &role, metav1.UpdateOptions{})
		must(o.t, err)
	}
	kubetest.Await(o.t, "the right to sign is left", func(context.Context) (bool, error) {
		return !o.Allowed(authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + home + ":" + us, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: "certificates.k8s.io", Resource: "signers", Verb: "sign", Name: signer,
		}}), nil
	})
	return func() {
		for _, role := range before {
			role.ResourceVersion = ""
			_, err := roles.Update(o.t.Context(), &role, metav1.UpdateOptions{})
			must(o.t, err)
		}
	}
}

// asked are requests of both kinds, one for each namespace.
type asked struct {
	pods     []*certificatesv1.PodCertificateRequest
	requests []*signingRequest
}

func (o *registrar) askOf(from, to int) (a asked) {
	o.t.Helper()
	for n := from; n < to; n++ {
		namespace := fmt.Sprint("shop-", n)
		user := o.ServiceAccount(namespace, "web")
		a.pods = append(a.pods, o.ask(namespace, "web-0")...)
		r := with(o.t, nil)
		r.Spec.Request = pemCSR(kubetest.CSR(o.t, ecdsaKey(o.t, elliptic.P256()), &x509.CertificateRequest{
			URIs: []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: "/ns/" + namespace + "/sa/web"}},
		}))
		o.Bind("", user, rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create"}})
		made, err := o.ClientFor(o.Account(namespace, "web")).CertificatesV1().CertificateSigningRequests().Create(o.t.Context(), r, metav1.CreateOptions{})
		must(o.t, err)
		a.requests = append(a.requests, made)
	}
	return a
}

// awaitShut returns once both doors report that the signer is shut so.
func (o *registrar) awaitShut(what string, so func(signing.Shut) bool) {
	o.t.Helper()
	for kind, state := range map[string]func() []signing.Shut{"pods": o.pods.Shut, "requests": o.csrs.Shut} {
		kubetest.Await(o.t, "the gate of "+kind+" is not shut "+what, func(context.Context) (bool, error) {
			now := state()
			return len(now) == 1 && so(now[0]), fmt.Errorf("it is %+v", now)
		})
	}
}
