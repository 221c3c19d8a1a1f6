//go:build e2e && linux

package fleet

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// least are the rights that the package's comment names, and no more.
var least = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
}

// real is a real cluster, which the fleet reaches as an account with the least rights.
type real struct {
	*kubetest.Cluster
	t testing.TB
}

func newReal(t testing.TB, name string) real {
	t.Helper()
	c := real{kubetest.Start(t, kubetest.Options{Name: name}), t}
	c.Bind("", c.ServiceAccount("istio-system", "discovery"), least...)
	c.ServiceAccount("shop", "web")
	return c
}

func (c real) config() *rest.Config { return c.ConfigFor(c.Account("istio-system", "discovery")) }

func (c real) kubeconfig() []byte { return c.Kubeconfig(c.Account("istio-system", "discovery")) }

func (c real) put(s *corev1.Secret) {
	c.t.Helper()
	of := c.Client().CoreV1().Secrets(s.Namespace)
	_, err := of.Update(c.t.Context(), s, metav1.UpdateOptions{})
	if err != nil {
		_, err = of.Create(c.t.Context(), s, metav1.CreateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c real) remove(namespace, name string) {
	c.t.Helper()
	if err := c.Client().CoreV1().Secrets(namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// holds waits until a fleet serves that text from a cluster.
func (r *running) holds(t testing.TB, id, text string) *Cluster {
	t.Helper()
	var c *Cluster
	until(t, id+" has "+text, func() bool {
		found, ok := r.Cluster(id)
		if c = found; !ok {
			return false
		}
		got, err := c.Secret("shop", "web")
		return err == nil && string(got.Data["tls.crt"]) == text
	})
	return c
}

func TestRealClustersAreServedWithLeastRights(t *testing.T) {
	local, east := newReal(t, "local"), newReal(t, "east")
	web := func(text string) *corev1.Secret {
		return secret("shop", "web", "", map[string][]byte{"tls.crt": []byte(text), "password": []byte("hunter2")})
	}
	local.put(web("local"))
	east.put(web("east 1"))
	auth := secret("shop", "basic", corev1.SecretTypeBasicAuth, map[string][]byte{"username": []byte("a"), "password": []byte("b")})
	east.put(auth)
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig()}))
	r := start(t, local).ready(t)
	r.holds(t, "local", "local")
	c := r.holds(t, "east", "east 1")
	if _, err := c.Secret("shop", "basic"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a Secret of another type: %v", err)
	}
	got, err := c.Secret("shop", "web")
	if err != nil || len(got.Data) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	for audience, want := range map[string]error{"istio-ca": nil, kubetest.Issuer: authn.ErrRefused} {
		id, err := c.Authenticator().Authenticate(t.Context(), authn.Credential{Token: ca.Token(east.Token("shop", "web", audience))})
		if !errors.Is(err, want) || want == nil && (id.Cluster != "east" || id.ServiceAccount != "web" || id.Namespace != "shop") {
			t.Errorf("%s: %+v, %v", audience, id, err)
		}
	}
	if _, err := c.Authenticator().Authenticate(t.Context(), authn.Credential{Token: ca.Token(local.Token("shop", "web", "istio-ca"))}); !errors.Is(err, authn.ErrRefused) {
		t.Errorf("another cluster's token: %v", err)
	}
	east.put(web("east 2"))
	r.holds(t, "east", "east 2")
	until(t, "the event of the change", func() bool { return r.told(Event{"east", Secret, "shop", "web"}) == 1 })
}

func TestRealRemoteIsRemovedAddedAndMoved(t *testing.T) {
	local, east, west := newReal(t, "local"), newReal(t, "east"), newReal(t, "west")
	for name, c := range map[string]real{"east": east, "west": west} {
		c.put(secret("shop", "web", "", map[string][]byte{"tls.crt": []byte(name)}))
	}
	r := start(t, local).ready(t)
	local.put(remotes("r", 0, map[string][]byte{"one": east.kubeconfig()}))
	r.holds(t, "one", "east")
	local.put(remotes("second", 0, map[string][]byte{"one": west.kubeconfig()}))
	until(t, "the second is refused", func() bool { return len(r.status("one").Refused) == 1 })
	local.remove("istio-system", "r")
	r.holds(t, "one", "west")
	local.remove("istio-system", "second")
	until(t, "it is removed", func() bool { _, known := r.Cluster("one"); return !known })
	local.put(remotes("r", 0, map[string][]byte{"one": east.kubeconfig(), "evil": append(east.kubeconfig(), "  proxy-url: x"...)}))
	r.holds(t, "one", "east")
	unlabelled := remotes("r", 0, map[string][]byte{"one": east.kubeconfig()})
	unlabelled.Labels = nil
	local.put(unlabelled)
	until(t, "without its label it holds no cluster", func() bool { return len(r.Status()) == 1 })
}

func TestRealServerIsFollowedAfterDowntime(t *testing.T) {
	local, east := newReal(t, "local"), newReal(t, "east")
	web := func(text string) *corev1.Secret {
		return secret("shop", "web", "", map[string][]byte{"tls.crt": []byte(text)})
	}
	east.put(web("before"))
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig()}))
	r := start(t, local).ready(t)
	c := r.holds(t, "east", "before")
	east.Stop()
	until(t, "it is shown", func() bool { return strings.Contains(r.status("east").Fault, "refused") })
	r.holds(t, "east", "before")
	if err := r.Ready(); err != nil {
		t.Error(err)
	}
	east.Resume()
	east.put(web("after"))
	until(t, "it is followed again", func() bool { // client-go waits half a minute at most
		got, err := c.Secret("shop", "web")
		return err == nil && string(got.Data["tls.crt"]) == "after"
	})
}

func TestRealClusterReportsMissingRights(t *testing.T) {
	local, east := newReal(t, "local"), newReal(t, "east")
	east.ServiceAccount("istio-system", "nobody")
	local.put(remotes("r", 0, map[string][]byte{"east": east.Kubeconfig(east.Account("istio-system", "nobody"))}))
	r := start(t, local)
	until(t, "the fault", func() bool { return strings.Contains(r.status("east").Fault, "cannot list resource") })
	east.Bind("", "system:serviceaccount:istio-system:nobody", least...)
	until(t, "it is synced", func() bool { return r.status("east").State == Synced })
}

// An account without any right is known to the API server.
func TestRealClientsNeedNoRights(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{Name: "local"})
	c.ServiceAccount("shop", "nobody")
	nobody := real{c, t}.as("shop", "nobody")
	r := start(t, nobody, clientsOnly, func(c *Config) { c.FolderOnly = true }).ready(t)
	if got := r.status("local"); got.State != Synced || got.Fault != "" {
		t.Errorf("%+v", got)
	}
}

// account is one of a real cluster.
type account struct{ of *rest.Config }

func (a account) config() *rest.Config { return a.of }

func (c real) as(namespace, name string) account {
	return account{c.ConfigFor(c.Account(namespace, name))}
}
