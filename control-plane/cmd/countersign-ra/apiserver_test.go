package main

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// object is any Kubernetes object.
type object map[string]any

func (o object) meta() object {
	if o["metadata"] == nil {
		o["metadata"] = map[string]any{}
	}
	return o["metadata"].(map[string]any)
}

// at returns what is at a path; nil if nothing is.
func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, key := range path {
		if below, ok := v.(object); ok {
			v = map[string]any(below)
		}
		below, _ := v.(map[string]any)
		v = below[key]
	}
	return v
}

// apiServer stands in for a cluster's: objects of any kind in memory, with versions and
// watches. It validates and authorizes nothing.
type apiServer struct {
	*httptest.Server
	away atomic.Bool // it answers 503
	rude atomic.Bool // it refuses each status

	mu      sync.Mutex
	objects map[string]object // by resource/namespace/name
	history []change
	changed chan struct{} // closed by the next change
	stopped chan struct{}
	asked   map[string]int // requests, by method and resource
	tokens  map[string]bound
}

// bound is what the server knows about a token of the service account web of shop, or of
// another.
type bound struct{ namespace, account, pod string }

type change struct {
	resource, kind string
	object         []byte
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{objects: map[string]object{}, changed: make(chan struct{}), stopped: make(chan struct{}), asked: map[string]int{}, tokens: map[string]bound{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(func() {
		close(s.stopped)
		s.Close()
	})
	s.put("configmaps", object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "kube-system", "name": "extension-apiserver-authentication"}, "data": map[string]any{}})
	return s
}

func (s *apiServer) kubeconfig() string {
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: ours}}]
`, s.URL, base64.StdEncoding.EncodeToString(roots))
}

func keyOf(resource string, o object) string {
	namespace, _ := o.meta()["namespace"].(string)
	return resource + "/" + namespace + "/" + o.meta()["name"].(string)
}

// put adds or changes an object.
func (s *apiServer) put(resource string, o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(resource, o)
}

func (s *apiServer) store(resource string, o object) {
	kind := "MODIFIED"
	if s.objects[keyOf(resource, o)] == nil {
		kind = "ADDED"
	}
	if o.meta()["uid"] == nil {
		o.meta()["uid"] = "uid-of-" + keyOf(resource, o)
	}
	o.meta()["resourceVersion"] = strconv.Itoa(len(s.history) + 1)
	s.objects[keyOf(resource, o)] = o
	text, _ := json.Marshal(o)
	s.history = append(s.history, change{resource, kind, text})
	close(s.changed)
	s.changed = make(chan struct{})
}

// get returns an object; nil if there is none.
func (s *apiServer) get(resource, namespace, name string) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[resource+"/"+namespace+"/"+name]
	if o == nil {
		return nil
	}
	text, _ := json.Marshal(o)
	var copied object
	_ = json.Unmarshal(text, &copied)
	return copied
}

// requests returns how many requests with a method there were for a resource.
func (s *apiServer) requests(method, resource string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[method+" "+resource]
}

// split returns what a path names.
func split(path string) (resource, namespace, name, sub string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	parts = parts[min(len(parts), map[string]int{"api": 2, "apis": 3}[parts[0]]):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "", "")
	return parts[0], namespace, parts[1], parts[2]
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	resource, namespace, name, sub := split(r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	if s.away.Load() {
		status(w, http.StatusServiceUnavailable, "ServiceUnavailable")
		return
	}
	if r.URL.Query().Get("watch") != "" {
		s.watch(w, r, resource)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.Method+" "+resource]++
	key := resource + "/" + namespace + "/" + name
	switch known := s.objects[key]; {
	case name == "" && r.Method == http.MethodGet:
		s.list(w, resource, namespace, r.URL.Query().Get("fieldSelector"))
	case r.Method == http.MethodGet && known == nil:
		status(w, http.StatusNotFound, "NotFound")
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(known)
	case r.Method == http.MethodPost || r.Method == http.MethodPut:
		s.write(w, r, resource, known, sub)
	default:
		status(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func (s *apiServer) write(w http.ResponseWriter, r *http.Request, resource string, known object, sub string) {
	var o object
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		status(w, http.StatusBadRequest, "BadRequest")
		return
	}
	if version := o.meta()["resourceVersion"]; known != nil && version != nil && version != "" && version != known.meta()["resourceVersion"] {
		status(w, http.StatusConflict, "Conflict")
		return
	}
	if resource == "selfsubjectreviews" { // it is answered, and not kept
		_ = json.NewEncoder(w).Encode(o)
		return
	}
	if resource == "tokenreviews" {
		token, _ := o.at("spec", "token").(string)
		o["status"] = s.review(token)
		_ = json.NewEncoder(w).Encode(o)
		return
	}
	if sub == "status" && s.rude.Load() {
		status(w, http.StatusForbidden, "Forbidden")
		return
	}
	if sub != "" { // status, or the approval, which is in the status
		next := maps.Clone(known)
		next["status"] = o["status"]
		o = next
	}
	s.store(resource, o)
	_ = json.NewEncoder(w).Encode(o)
}

// review answers for tokens whose audience is istio-ca.
func (s *apiServer) review(token string) object {
	b, known := s.tokens[token]
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
		s.put("pods", object{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": b.namespace, "name": b.pod, "uid": "p-" + b.pod},
			"spec": object{"nodeName": node, "serviceAccountName": b.account}, "status": object{"phase": "Running"},
		})
	}
}

// lists are the version and kind of each list.
var lists = map[string][2]string{
	"pods":                       {"v1", "PodList"},
	"secrets":                    {"v1", "SecretList"},
	"podcertificaterequests":     {"certificates.k8s.io/v1", "PodCertificateRequestList"},
	"certificatesigningrequests": {"certificates.k8s.io/v1", "CertificateSigningRequestList"},
	"clustertrustbundles":        {"certificates.k8s.io/v1", "ClusterTrustBundleList"},
}

// list answers with the objects of a namespace, or of all. Of selectors, the one by service
// account counts, without which a test of many pods would be one of this list.
func (s *apiServer) list(w http.ResponseWriter, resource, namespace, selector string) {
	prefix := resource + "/"
	if namespace != "" {
		prefix += namespace + "/"
	}
	_, account, selects := strings.Cut(selector, "spec.serviceAccountName=")
	account, _, _ = strings.Cut(account, ",")
	found := []string{}
	for key, o := range s.objects {
		if strings.HasPrefix(key, prefix) && (!selects || o.at("spec", "serviceAccountName") == account) {
			found = append(found, key)
		}
	}
	slices.Sort(found)
	items := []object{}
	for _, key := range found {
		items = append(items, s.objects[key])
	}
	kind := lists[resource]
	_ = json.NewEncoder(w).Encode(object{"kind": kind[1], "apiVersion": kind[0], "metadata": object{"resourceVersion": strconv.Itoa(len(s.history))}, "items": items})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource string) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		status(w, http.StatusUnprocessableEntity, "Invalid")
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	for {
		s.mu.Lock()
		news, changed := s.history[min(from, len(s.history)):], s.changed
		from = len(s.history)
		s.mu.Unlock()
		for _, c := range news {
			if c.resource == resource {
				fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", c.kind, c.object)
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-s.stopped:
			return
		}
	}
}

func status(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"as the test says","reason":%q,"code":%d}`, reason, code)
}
