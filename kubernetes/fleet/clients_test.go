package fleet

import (
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/sdk/authn"
)

func clientsOnly(c *Config) { c.ClientsOnly = true }

// requests are those that a server got, without their queries.
func (s *apiServer) requests() []string {
	var paths []string
	for _, asked := range s.asked() {
		path, _, _ := strings.Cut(asked, "?")
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func TestClientsOnlyReadsNoObjects(t *testing.T) {
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	east.put(secret("shop", "web", "", map[string][]byte{"tls.crt": {1}}))
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local, clientsOnly).ready(t)
	c := r.synced(t, "east", east)
	until(t, "both are told", func() bool { return r.told(Event{Cluster: "local"}) == 1 && r.told(Event{Cluster: "east"}) == 2 })
	const introduced = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews"
	if got := local.requests(); !slices.Equal(got, []string{"GET /api/v1/namespaces/istio-system/secrets", introduced}) {
		t.Errorf("the local one was asked: %q", got)
	}
	if got := east.requests(); !slices.Equal(got, []string{introduced}) {
		t.Errorf("the remote one was asked: %q", got)
	}
	if got := r.status("east"); got.State != Synced || !got.Serving || got.Server != east.URL {
		t.Errorf("%+v", got)
	}
	_, err := c.Secret("shop", "web")
	_, configErr := c.ConfigMap("shop", "web")
	if !errors.Is(err, ErrNotSynced) || !errors.Is(configErr, ErrNotSynced) {
		t.Errorf("%v, %v", err, configErr)
	}
	if got, err := c.Client().CoreV1().Secrets("shop").List(t.Context(), metav1.ListOptions{Limit: 10}); err != nil || len(got.Items) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := c.Authenticator().Authenticate(t.Context(), authn.Credential{Token: "bad"}); !errors.Is(err, authn.ErrRefused) {
		t.Error(err)
	}
	local.remove(remotes("r", 0, nil))
	r.gone(t, "east", east)
}

func TestClientIsSyncedOnceItsCredentialIsAccepted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	for status, want := range map[int]string{http.StatusUnauthorized: "our credential", http.StatusForbidden: "credential: ", -1: "connection: "} {
		east.fail(status)
		r := start(t, local, clientsOnly)
		until(t, "the reason is shown", func() bool { return strings.Contains(r.status("east").Fault, want) })
		if got := r.status("east"); got.State == Synced || got.Serving {
			t.Errorf("%d: %+v", status, got)
		}
		east.fail(0)
		r.synced(t, "east", east)
		until(t, "it is well", func() bool { got := r.status("east"); return got.State == Synced && got.Fault == "" })
		r.end()
	}
}

func TestClientWithoutAnAnswerIsGivenUp(t *testing.T) {
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	east.fail(-2)
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local, clientsOnly, func(c *Config) { c.GiveUp = patience / 600 })
	until(t, "it is given up", func() bool { return strings.Contains(r.status("east").Fault, "given up") })
	if _, known := r.Cluster("east"); known || r.status("east").State != Failed {
		t.Errorf("%+v", r.status("east"))
	}
}

func TestFolderOnlyReadsNoSecrets(t *testing.T) {
	s := servers(t, "local", "east", "west")
	dir := t.TempDir()
	place(t, filepath.Join(dir, "east.yaml"), s[1].kubeconfig(""))
	s[0].put(remotes("r", 0, map[string][]byte{"west": s[2].kubeconfig("")}))
	r := start(t, s[0], clientsOnly, func(c *Config) { c.Folder, c.FolderOnly = dir, true }).ready(t)
	r.synced(t, "east", s[1])
	if len(r.Status()) != 2 || len(s[2].requests()) != 0 {
		t.Errorf("%+v", r.Status())
	}
	for _, path := range s[0].requests() {
		if strings.Contains(path, "secrets") {
			t.Errorf("the local cluster was asked: %s", path)
		}
	}
}

// A thousand certificates take two thousand requests.
func TestClientsOnlyAreNotThrottled(t *testing.T) {
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local, clientsOnly).ready(t)
	for _, c := range []*Cluster{r.Local(), r.synced(t, "east", east)} {
		if limit := c.Client().CoreV1().RESTClient().GetRateLimiter(); limit != nil {
			t.Errorf("%s: %g a second", c.ID(), limit.QPS())
		}
	}
}

// Only reviews tell whether callers can be authenticated.
func TestRefusedWriteDoesNotMarkClusterAway(t *testing.T) {
	s := servers(t, "local")[0]
	r := start(t, s, clientsOnly).ready(t)
	s.answer(func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusForbidden, "no") })
	_, err := r.Local().Client().CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || r.Local().conn.health.fault() != "" {
		t.Errorf("%v: %s", err, r.Local().conn.health.fault())
	}
}

// Somebody's pod may be long, and stops no other's.
func TestLongAnswerFailsAlone(t *testing.T) {
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local, clientsOnly).ready(t)
	c := r.synced(t, "east", east)
	for values, fits := range map[int]bool{2 * maxAnswer / valueSize: true, defaultResponse / valueSize: false} {
		east.answer(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(inJSON(w), `{"kind": "Pod", "apiVersion": "v1", "spec": {"containers": [{}`+strings.Repeat(",{}", values/2)+`]}}`)
		})
		got, err := c.Client().CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{})
		if fits != (err == nil) || fits && len(got.Spec.Containers) < values/2 {
			t.Errorf("%d values: %v", values, err)
		}
	}
	east.answer(nil)
	if _, err := c.Client().CoreV1().Secrets("shop").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if now, _ := r.Cluster("east"); now != c || r.status("east").State != Synced {
		t.Errorf("%+v", r.status("east"))
	}
}
