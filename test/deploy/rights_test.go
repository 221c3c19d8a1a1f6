//go:build e2e

package deploy_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// needs are what the service does with an API server.
var needs = map[string]func(context.Context, kubernetes.Interface) error{
	"list secrets": func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
		return err
	},
	"watch secrets": func(ctx context.Context, c kubernetes.Interface) error {
		return watched(c.CoreV1().Secrets("").Watch(ctx, metav1.ListOptions{}))
	},
	"list configmaps": func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
		return err
	},
	"watch configmaps": func(ctx context.Context, c kubernetes.Interface) error {
		return watched(c.CoreV1().ConfigMaps("").Watch(ctx, metav1.ListOptions{}))
	},
	"create tokenreviews": func(ctx context.Context, c kubernetes.Interface) error {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x", Audiences: []string{"istio-ca"}}}
		_, err := c.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
		return err
	},
	"create subjectaccessreviews": func(ctx context.Context, c kubernetes.Interface) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:shop:web",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "shop", Verb: "list", Resource: "secrets"},
		}}
		_, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err
	},
}

func watched(w interface{ Stop() }, err error) error {
	if err == nil {
		w.Stop()
	}
	return err
}

// bound is a cluster where the base's rights are, with a client that has them alone.
func bound(t *testing.T) (c *kubetest.Cluster, client *kubernetes.Clientset, role rbacv1.ClusterRole) {
	t.Helper()
	c = kubetest.Start(t, kubetest.Options{})
	c.Namespace("mesh")
	text := built(t, "namespace: mesh\nresources: [BASE/remote]", nil)
	apply(t, c, text)
	must(t, json.Unmarshal(objects(t, text, "ClusterRole")[0].text, &role))
	client = c.ClientFor(c.Account("mesh", "countersign-discovery"))
	for what, need := range needs {
		soon(t, what, func() error { return need(t.Context(), client) })
	}
	return c, client, role
}

// soon waits for the server's authorizer, which follows what is written.
func soon(t *testing.T, what string, so func() error) {
	t.Helper()
	soonIn(t, kubetest.Patience, what, so)
}

func soonIn(t *testing.T, limit time.Duration, what string, so func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for err := so(); err != nil; err = so() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// refused is nil where the answer was that it is forbidden.
func refused(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return fmt.Errorf("not refused: %w", cmp.Or(err, errors.New("it works")))
}

// Each verb that is taken away takes what it is named after, and nothing else.
func TestRealRightsAreAllNeeded(t *testing.T) {
	c, client, role := bound(t)
	set := func(rules []rbacv1.PolicyRule) {
		t.Helper()
		now, err := c.Client().RbacV1().ClusterRoles().Get(t.Context(), role.Name, metav1.GetOptions{})
		must(t, err)
		now.Rules = rules
		_, err = c.Client().RbacV1().ClusterRoles().Update(t.Context(), now, metav1.UpdateOptions{})
		must(t, err)
	}
	left := len(needs)
	for i, rule := range role.Rules {
		for j, verb := range rule.Verbs {
			gone := verb + " " + rule.Resources[0]
			if needs[gone] == nil {
				t.Errorf("nothing needs to %s", gone)
				continue
			}
			rules := slices.Clone(role.Rules)
			rules[i].Verbs = slices.Delete(slices.Clone(rule.Verbs), j, j+1)
			if len(rules[i].Verbs) == 0 {
				rules = slices.Delete(rules, i, i+1)
			}
			set(rules)
			soon(t, "without "+gone, func() error { return refused(needs[gone](t.Context(), client)) })
			for what, need := range needs {
				if err := need(t.Context(), client); what != gone && err != nil {
					t.Errorf("%s, without %s: %v", what, gone, err)
				}
			}
			set(role.Rules)
			soon(t, "with "+gone, func() error { return needs[gone](t.Context(), client) })
			left--
		}
	}
	if left != 0 {
		t.Errorf("%d things are needed that no verb is for", left)
	}
}

// What the account may, beyond what every account may, is the base's role, in each namespace.
func TestRealRightsAreExactlyTheRole(t *testing.T) {
	c, client, role := bound(t)
	c.ServiceAccount("shop", "nobody")
	for _, namespace := range []string{"mesh", "shop", "kube-system"} {
		more := rightsIn(t, client, namespace)
		for _, r := range rightsIn(t, c.ClientFor(c.Account("shop", "nobody")), namespace) {
			more = slices.DeleteFunc(more, func(other string) bool { return r == other })
		}
		var want []string
		for _, rule := range role.Rules {
			want = append(want, spelled(t, authorizationv1.ResourceRule{APIGroups: rule.APIGroups, Resources: rule.Resources, Verbs: rule.Verbs}))
		}
		slices.Sort(want)
		if !slices.Equal(more, want) {
			t.Errorf("in %s: %q, want %q", namespace, more, want)
		}
	}
}

func rightsIn(t *testing.T, client kubernetes.Interface, namespace string) (rights []string) {
	t.Helper()
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	reply, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
	must(t, err)
	if reply.Status.Incomplete {
		t.Error("the server does not tell all rights")
	}
	for _, rule := range reply.Status.ResourceRules {
		rights = append(rights, spelled(t, rule))
	}
	for _, rule := range reply.Status.NonResourceRules {
		text, err := json.Marshal(rule)
		must(t, err)
		rights = append(rights, string(text))
	}
	slices.Sort(rights)
	return rights
}

func spelled(t *testing.T, rule authorizationv1.ResourceRule) string {
	t.Helper()
	text, err := json.Marshal(rule)
	must(t, err)
	return string(text)
}
