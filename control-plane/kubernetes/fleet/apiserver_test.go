package fleet

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// apiServer stands in for a cluster's, on loopback: secrets and configmaps with lists,
// watches and initial events, and TokenReview.
type apiServer struct {
	*httptest.Server
	token string
	open  atomic.Int32 // connections

	mu       sync.Mutex
	objects  map[string]metav1.Object // by resource/namespace/name
	history  []event
	changed  chan struct{} // closed by the next change
	cut      chan struct{} // closed to end all watches
	fault    int           // a status for all; -1: no answer at all, -2: it hangs
	instead  http.HandlerFunc
	asked    []string
	watching int
}

type event struct {
	resource, kind string
	object         metav1.Object
}

func newAPIServer(t testing.TB, token string) *apiServer {
	t.Helper()
	s := &apiServer{token: token, objects: map[string]metav1.Object{}, changed: make(chan struct{}), cut: make(chan struct{})}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.open.Add(-1)
			happened.tell()
		}
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that a test cuts
	s.StartTLS()
	t.Cleanup(func() {
		s.fail(http.StatusGone)
		s.Close()
	})
	return s
}

func (s *apiServer) rootPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func (s *apiServer) config() *rest.Config {
	return &rest.Config{Host: s.URL, BearerToken: s.token, TLSClientConfig: rest.TLSClientConfig{CAData: s.rootPEM()}}
}

// kubeconfig reaches the server; a mark makes its bytes others.
func (s *apiServer) kubeconfig(mark string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: %q}}]
# %s
`, s.URL, base64.StdEncoding.EncodeToString(s.rootPEM()), s.token, mark)
}

// fail has the server answer everything with a status from now on; 0 heals it.
func (s *apiServer) fail(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = status
	close(s.cut)
	s.cut = make(chan struct{})
}

// answer has another handler answer from now on whom it knows; nil ends that.
func (s *apiServer) answer(instead http.HandlerFunc) {
	s.mu.Lock()
	s.instead = instead
	s.mu.Unlock()
	s.fail(0)
}

func resourceOf(o metav1.Object) string {
	if _, ok := o.(*corev1.Secret); ok {
		return "secrets"
	}
	return "configmaps"
}

// put adds or changes an object.
func (s *apiServer) put(o metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource, kind := resourceOf(o), "ADDED"
	key := resource + "/" + o.GetNamespace() + "/" + o.GetName()
	if s.objects[key] != nil {
		kind = "MODIFIED"
	}
	s.note(event{resource, kind, o})
	s.objects[key] = o
}

func (s *apiServer) remove(o metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, resourceOf(o)+"/"+o.GetNamespace()+"/"+o.GetName())
	s.note(event{resourceOf(o), "DELETED", o})
}

func (s *apiServer) note(e event) {
	s.history = append(s.history, e)
	e.object.SetResourceVersion(strconv.Itoa(len(s.history)))
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *apiServer) watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watching
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault, cut, instead := s.fault, s.cut, s.instead
	s.asked = append(s.asked, r.Method+" "+r.URL.String())
	s.mu.Unlock()
	switch {
	case fault == -2:
		select {
		case <-cut:
		case <-r.Context().Done():
		}
		return
	case fault == -1:
		panic(http.ErrAbortHandler)
	case fault != 0:
		refuse(w, fault, "the test says so to "+r.Header.Get("Authorization"))
	case r.Header.Get("Authorization") != "Bearer "+s.token:
		refuse(w, http.StatusUnauthorized, "who are you")
	case instead != nil:
		instead(w, r)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		_, _ = io.WriteString(inJSON(w), `{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`)
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		review(w, r)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, cut)
	default:
		s.list(w, r)
	}
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(status), Message: message,
	})
}

func review(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Spec struct {
			Token     string
			Audiences []string
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&q)
	status := map[string]any{"authenticated": q.Spec.Token == "good", "audiences": q.Spec.Audiences, "user": map[string]any{
		"username": "system:serviceaccount:shop:web", "groups": []string{"system:serviceaccounts", "system:serviceaccounts:shop"},
	}}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status})
}

// selects tells whether an object is of those that a request asks for. Field
// selectors are left out, as by a server that is not to be believed.
func selects(r *http.Request, resource string, o metav1.Object) bool {
	parts := strings.Split(r.URL.Path, "/")
	if parts[len(parts)-1] != resource || len(parts) > 4 && parts[4] != o.GetNamespace() {
		return false
	}
	selector := r.URL.Query().Get("labelSelector")
	key, value, _ := strings.Cut(selector, "=")
	return selector == "" || o.GetLabels()[key] == value
}

// typed is an object as the API sends it.
func typed(o metav1.Object) any {
	switch o := o.(type) {
	case *corev1.Secret:
		c := o.DeepCopy()
		c.TypeMeta = metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"}
		return c
	case *corev1.ConfigMap:
		c := o.DeepCopy()
		c.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
		return c
	}
	return nil
}

// selected returns what a request asks for, as it is now. s.mu is held.
func (s *apiServer) selected(r *http.Request) []any {
	items := []any{}
	for key, o := range s.objects {
		resource, _, _ := strings.Cut(key, "/")
		if selects(r, resource, o) {
			items = append(items, typed(o))
		}
	}
	return items
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := "SecretList"
	if strings.HasSuffix(r.URL.Path, "configmaps") {
		kind = "ConfigMapList"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "v1", "kind": kind, "items": s.selected(r), "metadata": map[string]any{"resourceVersion": strconv.Itoa(len(s.history))},
	})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, cut chan struct{}) {
	s.mu.Lock()
	s.watching++
	seen, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	var initial []any
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		seen, initial = len(s.history), s.selected(r)
	}
	s.mu.Unlock()
	defer func() {
		defer happened.tell()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watching--
	}()
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	send := func(kind string, o any) { _ = encoder.Encode(map[string]any{"type": kind, "object": o}) }
	if initial != nil {
		for _, o := range initial {
			send("ADDED", o)
		}
		send("BOOKMARK", map[string]any{"kind": map[bool]string{true: "Secret", false: "ConfigMap"}[strings.HasSuffix(r.URL.Path, "secrets")], "apiVersion": "v1", "metadata": map[string]any{
			"resourceVersion": strconv.Itoa(seen), "annotations": map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}})
	}
	for {
		s.mu.Lock()
		news, changed := s.history[min(seen, len(s.history)):], s.changed
		for _, e := range news {
			if selects(r, e.resource, e.object) {
				send(e.kind, typed(e.object))
			}
		}
		seen += len(news)
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}
