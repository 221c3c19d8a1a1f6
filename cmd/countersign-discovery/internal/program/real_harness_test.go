//go:build e2e && linux

package program

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// many is a service in the cluster home, reached as the account of the base has its rights;
// certificates of east.test are of the cluster east.
const many = `
listen: {tls: '127.0.0.1:0'}
certificate: {dns_names: [discovery.test]}
PROVIDERS
trust_domains:
- {name: cluster.local, own_ca: true}
- {name: east.test, roots_file: DIR/east.pem, clusters: [east]}
cluster: {id: home, kubeconfig: DIR/home}
status: {address: 'unix:DIR/page'}
`

const atOnce = "times: {drain: 0s}\n"

const (
	system = "istio-system"
	shop   = "shop"
	bank   = "bank"
)

// listSecrets is the right that a key takes.
var listSecrets = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}

// realm is a cluster with a real API server, where the service has the base's rights alone.
type realm struct {
	*kubetest.Cluster
	name string
	t    *testing.T
}

func newRealm(t *testing.T, options kubetest.Options) realm {
	t.Helper()
	r := realm{kubetest.Start(t, options), options.Name, t}
	r.Bind("", r.ServiceAccount(system, "countersign-discovery"), baseRights(t)...)
	r.Namespace(shop, bank)
	return r
}

// baseRights are those of the base that is deployed.
func baseRights(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	for text := range strings.SplitSeq(read(t, programs.File(t, "deploy/kustomize/remote/rights.yaml")), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(text), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" {
			return role.Rules
		}
	}
	t.Fatal("the base has no ClusterRole")
	return nil
}

// kubeconfig is how the service gets in; each has a token of its own.
func (r realm) kubeconfig() []byte { return r.Kubeconfig(r.Account(system, "countersign-discovery")) }

// account makes one; may gives it the right to list the secrets of its namespace.
func (r realm) account(namespace, name string, may bool) (revoke func()) {
	r.t.Helper()
	user := r.ServiceAccount(namespace, name)
	if !may {
		return nil
	}
	return r.Bind(namespace, user, listSecrets)
}

// put writes the secret at NAMESPACE/NAME.
func (r realm) put(at string, data map[string][]byte) {
	r.t.Helper()
	namespace, name, _ := strings.Cut(at, "/")
	r.store(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data})
}

// kubeconfigs writes one that says which clusters there are.
func (r realm) kubeconfigs(name string, of map[string][]byte) {
	r.t.Helper()
	meta := metav1.ObjectMeta{Namespace: system, Name: name, Labels: map[string]string{"istio/multiCluster": "true"}}
	r.store(&corev1.Secret{ObjectMeta: meta, Data: of})
}

func (r realm) store(s *corev1.Secret) {
	r.t.Helper()
	secrets := r.Client().CoreV1().Secrets(s.Namespace)
	_, err := secrets.Update(r.t.Context(), s, metav1.UpdateOptions{})
	if err != nil {
		_, err = secrets.Create(r.t.Context(), s, metav1.CreateOptions{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r realm) putMap(at string, data map[string]string) {
	r.t.Helper()
	namespace, name, _ := strings.Cut(at, "/")
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if _, err := r.Client().CoreV1().ConfigMaps(namespace).Create(r.t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: data}, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r realm) remove(at string) {
	r.t.Helper()
	namespace, name, _ := strings.Cut(at, "/")
	if err := r.Client().CoreV1().Secrets(namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// world are the clusters, and a service in one of them.
type world struct {
	*program
	home, east realm
	signs      map[string]authority // certificates of a cluster's proxies
}

// serveReal runs a service; more is added to its configuration.
func serveReal(t *testing.T, home, east realm, more string) *world {
	t.Helper()
	w := &world{home: home, east: east, signs: map[string]authority{"east": namedAuthority(t, "east")}}
	dir := files(t, many+more)
	write(t, filepath.Join(dir, "home"), string(home.kubeconfig()))
	write(t, filepath.Join(dir, "east.pem"), string(w.signs["east"].PEM()))
	w.program = start(t, dir)
	w.tls(t)
	eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "ca", "ca-cert.pem")); return err == nil }, "it has a CA", w.log)
	w.ready(t)
	w.signs["home"] = w.authority(t)
	return w
}

// cluster is what the status says of one; nil for one that is not known.
func (w *world) cluster(t *testing.T, id string) *fleet.Status {
	t.Helper()
	_, text := w.page(t, "/status.json")
	var r struct {
		Clusters []fleet.Status `json:"clusters"`
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	for i, c := range r.Clusters {
		if c.ID == id {
			return &r.Clusters[i]
		}
	}
	return nil
}

// becomes waits until the status of a cluster is such.
func (w *world) becomes(t *testing.T, id, what string, is func(s *fleet.Status) bool) {
	t.Helper()
	eventually(t, func() bool { return is(w.cluster(t, id)) }, id+" "+what, w.log)
}

func synced(s *fleet.Status) bool { return s != nil && s.State == fleet.Synced }

// metric is the value of a line of /metrics, empty where there is none.
func (w *world) metric(t *testing.T, line string) string {
	t.Helper()
	_, text := w.page(t, "/metrics")
	_, after, _ := strings.Cut("\n"+text, "\n"+line+" ")
	value, _, _ := strings.Cut(after, "\n")
	return value
}
