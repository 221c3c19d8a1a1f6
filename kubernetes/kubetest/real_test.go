//go:build e2e

package kubetest_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var listSecrets = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}

func TestRealTokensAreBoundToClusterAndAudience(t *testing.T) {
	one, two := kubetest.Start(t, kubetest.Options{Name: "one"}), kubetest.Start(t, kubetest.Options{Name: "two"})
	user := one.ServiceAccount("shop", "web")
	two.ServiceAccount("shop", "web")
	mesh, own := one.Token("shop", "web", "istio-ca"), one.Token("shop", "web")
	for _, c := range []struct {
		name, token string
		cluster     *kubetest.Cluster
		want        string
	}{
		{"for the audience", mesh, one, user},
		{"for another audience", own, one, ""},
		{"of another cluster", mesh, two, ""},
		{"made up", "x.y.z", one, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			review, err := c.cluster.Client().AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: c.token, Audiences: []string{"istio-ca"}},
			}, metav1.CreateOptions{})
			must(t, err)
			if got := review.Status; got.Authenticated != (c.want != "") || got.User.Username != c.want {
				t.Errorf("authenticated %t as %q, want %q", got.Authenticated, got.User.Username, c.want)
			}
		})
	}
}

func TestRealRightsHoldUntilRevoked(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	user := c.ServiceAccount("shop", "web")
	c.Namespace("bank")
	revoke := c.Bind("shop", user, listSecrets)
	c.Bind("", c.ServiceAccount("mesh", "discovery"), listSecrets)
	asked := func(user, namespace, verb string) bool {
		return c.Allowed(authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Resource: "secrets"},
		})
	}
	if !asked(user, "shop", "list") || asked(user, "bank", "list") || asked(user, "shop", "delete") {
		t.Error("a right in one namespace is not just that")
	}
	if !asked("system:serviceaccount:mesh:discovery", "bank", "list") {
		t.Error("a right in all namespaces is not one in bank")
	}
	client := c.ClientFor(c.Account("shop", "web"))
	if _, err := client.CoreV1().Secrets("shop").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	revoke()
	if _, err := client.CoreV1().Secrets("shop").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("after revoke: %v", err)
	}
}

func TestRealClusterKeepsStateAcrossRestart(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	url := c.URL
	c.Namespace("shop")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tls"}, StringData: map[string]string{"a": "b"}}
	if _, err := c.Client().CoreV1().Secrets("shop").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Stop()
	if _, err := c.Client().CoreV1().Secrets("shop").Get(t.Context(), "tls", metav1.GetOptions{}); err == nil {
		t.Error("a stopped server answers")
	}
	c.Resume()
	got, err := c.Client().CoreV1().Secrets("shop").Get(t.Context(), "tls", metav1.GetOptions{})
	if err != nil || string(got.Data["a"]) != "b" || c.URL != url {
		t.Errorf("%v at %s, which was at %s: %v", got.Data, c.URL, url, err)
	}
}

func TestRealAllowAllStillDeniesAnonymous(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{AllowAll: true})
	c.ServiceAccount("shop", "web")
	for name, user := range map[string]*clientcmdapi.AuthInfo{"a token": c.Account("shop", "web"), "a certificate": c.User("anybody", "any-group")} {
		if _, err := c.ClientFor(user).CoreV1().Secrets("").List(context.Background(), metav1.ListOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.ClientFor(&clientcmdapi.AuthInfo{}).CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("anonymous: %v", err)
	}
}

// A test that ended has left nothing.
func TestRealClusterEndsWithItsTest(t *testing.T) {
	temporary := t.TempDir()
	t.Run("a cluster", func(t *testing.T) {
		t.Setenv("TMPDIR", temporary)
		kubetest.Start(t, kubetest.Options{})
		if running := below(t, temporary); len(running) != 2 {
			t.Errorf("while it runs: %q", running)
		}
	})
	if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	if running := below(t, temporary); len(running) != 0 {
		t.Errorf("processes are left: %q", running)
	}
}

// below are the processes that work below a folder, by their program.
func below(t *testing.T, folder string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	must(t, err)
	var programs []string
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && filepath.Dir(cwd) == folder {
			program, _ := os.Readlink(filepath.Join(filepath.Dir(link), "exe"))
			programs = append(programs, filepath.Base(program))
		}
	}
	slices.Sort(programs)
	return programs
}

func TestRealServerAppliesLikeTheFake(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	c.Namespace("shop")
	applies(t, c.ClientFor(c.Admin()))
}
