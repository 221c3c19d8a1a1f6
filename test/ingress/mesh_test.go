//go:build e2e && linux

package ingress_test

import (
	"encoding/json"
	"maps"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

const (
	namespace = "istio-ingress"
	account   = "gateway"
	serverID  = "spiffe://cluster.local/ns/istio-system/sa/countersign-discovery"
)

var listSecrets = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}

// cluster is an API server with the gateway's account, which may list its secrets until
// revoke is called.
type cluster struct {
	*kubetest.Cluster
	t      *testing.T
	user   string
	revoke func()
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Cluster: kubetest.Start(t, kubetest.Options{}), t: t}
	may := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	c.Bind("", c.ServiceAccount("istio-system", "countersign-discovery"), may("", "secrets", "list", "watch"), may("", "configmaps", "list", "watch"),
		may("authentication.k8s.io", "tokenreviews", "create"), may("authorization.k8s.io", "subjectaccessreviews", "create"))
	c.user = c.ServiceAccount(namespace, account)
	c.grant()
	return c
}

func (c *cluster) grant() {
	c.t.Helper()
	c.revoke = c.Bind(namespace, c.user, listSecrets)
}

// put writes the secret "web" of the gateway's namespace.
func (c *cluster) put(s site) {
	c.t.Helper()
	secrets := c.Client().CoreV1().Secrets(namespace)
	web := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Type: corev1.SecretTypeTLS, Data: s.data}
	_, err := secrets.Update(c.t.Context(), web, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = secrets.Create(c.t.Context(), web, metav1.CreateOptions{})
	}
	must(c.t, err)
}

func (c *cluster) remove() {
	c.t.Helper()
	must(c.t, c.Client().CoreV1().Secrets(namespace).Delete(c.t.Context(), "web", metav1.DeleteOptions{}))
}

// service is a countersign-discovery that can be killed, and started again at its address.
type service struct {
	*proctest.Process
	dir, address string
}

// newService starts one; more are its settings beside where it is and whom it asks.
func newService(t *testing.T, c *cluster, more map[string]any) *service {
	t.Helper()
	s := &service{dir: proctest.Folder(t), address: proctest.FreeAddress(t)}
	write(t, s.file("kubeconfig"), c.Kubeconfig(c.Account("istio-system", "countersign-discovery")))
	settings := map[string]any{
		"listen": map[string]any{"tls": s.address}, "cluster": map[string]any{"kubeconfig": s.file("kubeconfig")},
		"status": map[string]any{"address": "unix:" + s.file("page")}, "times": map[string]any{"drain": "1s"}, "dev": true,
		"access": map[string]any{"deny": "10s"},
	}
	maps.Copy(settings, more)
	writeJSON(t, s.file("c.yaml"), settings)
	s.start(t)
	return s
}

func (s *service) file(name string) string { return filepath.Join(s.dir, name) }

func (s *service) start(t *testing.T) {
	t.Helper()
	s.Process = startProcess(t, programs.Path(t, "countersign-discovery"), "serve", "--config", s.file("c.yaml"))
	poll(t, "the discovery service to be ready", func() bool {
		if s.Ended() != nil {
			t.Fatalf("it ended:\n%s", s.Log)
		}
		return page(s.file("page"), "/readyz") != ""
	})
}

// streams are who is there, as the service verified it: kind and identity.
func (s *service) streams(t *testing.T) (all []string) {
	t.Helper()
	var report struct {
		Server struct {
			Streams []struct{ Kind, Identity string }
		}
	}
	must(t, json.Unmarshal([]byte(page(s.file("page"), "/status.json")), &report))
	for _, stream := range report.Server.Streams {
		all = append(all, stream.Kind+" "+stream.Identity)
	}
	return all
}

// agent is a `countersign agent` with the gateway's socket alone.
type agent struct {
	*proctest.Process
	socket, status string
}

func startAgent(t *testing.T, providers []any, gateway map[string]any) *agent {
	t.Helper()
	dir := proctest.Folder(t)
	a := &agent{socket: filepath.Join(dir, "sds"), status: filepath.Join(dir, "page")}
	gateway["enabled"], gateway["socket"] = true, a.socket
	writeJSON(t, filepath.Join(dir, "c.yaml"), map[string]any{
		"namespace": namespace, "service_account": account, "runtime_dir": dir, "dev": true, "providers": providers,
		"socket": map[string]any{"enabled": false}, "gateway": gateway, "status": map[string]any{"address": "unix:" + a.status},
	})
	a.Process = startProcess(t, programs.Path(t, "countersign"), "agent", "--config", filepath.Join(dir, "c.yaml"))
	poll(t, "the agent's socket", func() bool {
		if a.Ended() != nil {
			t.Fatalf("it ended:\n%s", a.Log)
		}
		conn, err := net.Dial("unix", a.socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return a
}

// fileProvider signs by the CA in a folder.
func fileProvider(ca string) []any {
	return []any{map[string]any{"name": "file", "settings": map[string]any{"dir": ca}}}
}

// awayWhile does so, too, but not while there is the file.
func awayWhile(outage, ca string) []any {
	settings := map[string]any{"dir": ca, "outage": outage}
	for _, name := range []string{"asks", "mood", "accept"} {
		settings[name] = outage + "." + name // what there is not
	}
	return []any{map[string]any{"name": "moody", "settings": settings}}
}

// metric is the value of a series, 0 where there is none.
func (a *agent) metric(t *testing.T, series string) float64 {
	t.Helper()
	return valueOf(t, page(a.status, "/metrics"), series)
}

func valueOf(t *testing.T, metrics, series string) float64 {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			number, err := strconv.ParseFloat(value, 64)
			must(t, err)
			return number
		}
	}
	return 0
}

// awaitNames waits until so many names of the gateway are in the state.
func (a *agent) awaitNames(t *testing.T, state string, n float64) {
	t.Helper()
	poll(t, "names that are "+state, func() bool { return a.metric(t, `countersign_gateway_names{state="`+state+`"}`) == n })
}

func writeJSON(t *testing.T, path string, content any) {
	t.Helper()
	text, err := json.Marshal(content) // JSON is YAML
	must(t, err)
	write(t, path, text)
}
