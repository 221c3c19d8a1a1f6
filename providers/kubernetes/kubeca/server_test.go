package kubeca

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const (
	web      = "spiffe://example.org/ns/shop/sa/web"
	ourToken = ca.Token("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ3ZWIifQ.c2lnbmF0dXJl")
	stale    = ca.Token("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJub2JvZHkifQ.c2lnbmF0dXJl")
	patience = 2 * time.Minute
	signers  = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	issuers  = "/apis/cert-manager.io/v1/namespaces/shop/certificaterequests"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is an API server in memory that takes exactly what the provider may send by the API
// reference, with a signer behind it.
type cluster struct {
	*httptest.Server
	*catest.CA
	folder string

	mu      sync.Mutex
	tokens  []ca.Token
	objects map[string]object // by path
	version int
	events  []change
	news    chan struct{} // closed at the next event
	calls   []string      // "VERB path" without names
	made    int
	decide  func(*object)                                          // called for each new object
	answer  func(w http.ResponseWriter, r *http.Request) bool      // before the server; true: answered
	watches func(w http.ResponseWriter, r *http.Request) (ok bool) // false: answered
	plain   map[string]string                                      // path to JSON
}

// event is a line of a watch.
type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

type change struct {
	version int
	path    string
	event   event
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{
		CA: catest.NewCA(catest.Options{Intermediates: 1}), folder: t.TempDir(), tokens: []ca.Token{ourToken},
		objects: map[string]object{}, news: make(chan struct{}), plain: map[string]string{},
	}
	c.decide = c.sign
	c.Server = httptest.NewUnstartedServer(c)
	c.EnableHTTP2 = true
	c.Config.ErrorLog = log.New(io.Discard, "", 0)
	c.StartTLS()
	t.Cleanup(c.Close)
	c.write(t, "root.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}))
	c.write(t, "token", []byte(ourToken.Reveal()+"\n"))
	c.write(t, "bundle.pem", c.Bundle().PEM())
	return c
}

func (c *cluster) write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(c.folder, name)
	must(t, os.WriteFile(path, content, 0o600))
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) file(name string) string { return filepath.Join(c.folder, name) }

// direct are settings for a signer; issuing ones for an issuer.
func (c *cluster) direct() Settings {
	u, err := setting.ParseURL(c.URL)
	if err != nil {
		panic(err)
	}
	return Settings{
		SignerName: "example.org/mesh", URL: u, TLS: setting.TLS{RootFile: c.file("root.pem")}, TokenFile: setting.File(c.file("token")),
		BundleFile: setting.Certificates(c.file("bundle.pem")),
	}
}

func (c *cluster) issuing() Settings {
	s := c.direct()
	s.SignerName, s.BundleFile, s.Issuer, s.Namespace = "", "", &Issuer{Name: "mesh"}, "shop"
	return s
}

func open(t *testing.T, settings Settings) *CA {
	t.Helper()
	c, err := Open(settings)
	must(t, err)
	c.longest = patience
	return c
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// took returns the calls since the last time.
func (c *cluster) took() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.calls = nil }()
	return c.calls
}

func (c *cluster) left() []object {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []object
	for _, o := range c.objects {
		all = append(all, o)
	}
	return all
}

// sign is a signer that approves what it may.
func (c *cluster) sign(o *object) {
	csr, err := pki.ParseCSR(o.Spec.Request)
	if err != nil || slices.Contains(csr.DNSNames, "bank.example.com") {
		o.condition("Denied", "True", "Policy", "not that name")
		return
	}
	ttl := time.Duration(o.Spec.ExpirationSeconds) * time.Second
	if o.Spec.Issuer != nil {
		ttl, _ = time.ParseDuration(o.Spec.Duration)
	}
	reply, err := c.CSRSign(context.Background(), ca.SignRequest{CSR: o.Spec.Request, TTL: ttl})
	if err != nil {
		o.condition("Failed", "True", "SignerValidationFailure", err.Error())
		return
	}
	o.condition("Approved", "True", "Policy", "")
	o.Status.Certificate = reply.Chain
	if o.Spec.Issuer != nil {
		o.condition("Ready", "True", "Issued", "")
		o.Status.CA = c.Bundle().PEM()
	}
}

func (o *object) condition(kind, status, reason, message string) {
	o.Status.Conditions = append(o.Status.Conditions, condition{kind, status, reason, message})
}

// update changes all objects, as a controller does.
func (c *cluster) update(change func(*object)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for path, o := range c.objects {
		change(&o)
		c.put(path, o, "MODIFIED")
	}
}

func (c *cluster) put(path string, o object, kind string) object {
	c.version++
	o.Metadata.ResourceVersion = strconv.Itoa(c.version)
	if c.objects[path] = o; kind == "DELETED" {
		delete(c.objects, path)
	}
	c.events = append(c.events, change{c.version, path, event{kind, o}})
	close(c.news)
	c.news = make(chan struct{})
	return o
}

func (c *cluster) deleteAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for path, o := range c.objects {
		c.put(path, o, "DELETED")
	}
}

var (
	collections = regexp.MustCompile(`^(` + signers + `|` + issuers + `)(/([a-z0-9.-]{1,253}))?$`)
	reviews     = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	found := collections.FindStringSubmatch(r.URL.Path)
	c.mu.Lock()
	answer, watches, plain, isPlain := c.answer, c.watches, c.plain[r.URL.Path], c.plain[r.URL.Path] != ""
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	known := slices.Contains(c.tokens, ca.Token(given)) || len(r.TLS.PeerCertificates) > 0
	verb := r.Method
	if r.URL.Query().Get("watch") != "" {
		verb = "WATCH"
	}
	if found != nil {
		c.calls = append(c.calls, verb)
	}
	c.mu.Unlock()
	switch {
	case answer != nil && answer(w, r):
	case !known:
		refuse(w, http.StatusUnauthorized, "Unauthorized "+given)
	case r.Header.Get("Accept") != "application/json" || len(body) > 0 && r.Header.Get("Content-Type") != "application/json":
		refuse(w, http.StatusUnsupportedMediaType, "want JSON")
	case isPlain:
		_, _ = io.WriteString(w, plain)
	case r.URL.Path == reviews:
		c.review(w, body)
	case found == nil:
		refuse(w, http.StatusNotFound, "the server could not find the requested resource")
	case verb == "WATCH":
		if watches == nil || watches(w, r) {
			c.watch(w, r, found[1])
		}
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.serve(w, r, found[1], found[3], body)
	}
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	reply(w, map[string]any{"kind": "Status", "status": "Failure", "message": message, "code": status})
}

func reply(w http.ResponseWriter, value any) { _ = json.NewEncoder(w).Encode(value) }

func (c *cluster) serve(w http.ResponseWriter, r *http.Request, collection, name string, body []byte) {
	path := collection + "/" + name
	o, exists := c.objects[path]
	switch {
	case r.Method == http.MethodPost && name == "":
		c.create(w, collection, body)
	case r.Method == http.MethodGet && name == "":
		c.list(w, r, collection)
	case !exists:
		refuse(w, http.StatusNotFound, name+" not found")
	case r.Method == http.MethodGet:
		reply(w, o)
	case r.Method == http.MethodDelete:
		c.delete(w, path, o, body)
	default:
		refuse(w, http.StatusMethodNotAllowed, "no such verb")
	}
}

// create is strict: a field that the type does not have is refused.
func (c *cluster) create(w http.ResponseWriter, collection string, body []byte) {
	var o object
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if wrong := o.wrong(collection); wrong != "" {
		refuse(w, http.StatusUnprocessableEntity, wrong)
		return
	}
	path := collection + "/" + o.Metadata.Name
	if _, exists := c.objects[path]; exists {
		refuse(w, http.StatusConflict, o.Metadata.Name+" already exists")
		return
	}
	c.made++
	o.Metadata.UID, o.Metadata.Created = fmt.Sprintf("uid-%d", c.made), time.Now().UTC().Truncate(time.Second)
	created := c.put(path, o, "ADDED")
	w.WriteHeader(http.StatusCreated)
	reply(w, created)
	if c.decide != nil {
		c.decide(&o)
		c.put(path, o, "MODIFIED")
	}
}

// wrong checks the fields by the API reference.
func (o object) wrong(collection string) string {
	csr := collection == signers
	want := object{APIVersion: "cert-manager.io/v1", Kind: "CertificateRequest"}
	if csr {
		want = object{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
	}
	block, rest := pem.Decode(o.Spec.Request)
	switch {
	case o.APIVersion != want.APIVersion || o.Kind != want.Kind:
		return "it is a " + o.APIVersion + " " + o.Kind
	case o.Metadata.UID != "" || o.Metadata.ResourceVersion != "" || len(o.Status.Conditions) > 0:
		return "the server sets that"
	case block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0:
		return "spec.request is not a request"
	case len(o.Spec.Usages) == 0 || len(slices.Compact(slices.Sorted(slices.Values(o.Spec.Usages)))) < len(o.Spec.Usages):
		return "spec.usages"
	case csr && (o.Spec.SignerName == "" || o.Spec.Issuer != nil || o.Spec.Duration != ""):
		return "spec.signerName"
	case csr && o.Spec.ExpirationSeconds != 0 && o.Spec.ExpirationSeconds < 600:
		return "spec.expirationSeconds may not specify a duration less than 600 seconds"
	case !csr && (o.Spec.Issuer == nil || o.Spec.SignerName != "" || o.Spec.ExpirationSeconds != 0):
		return "spec.issuerRef"
	}
	return ""
}

func (c *cluster) delete(w http.ResponseWriter, path string, o object, body []byte) {
	var options struct {
		Preconditions struct{ UID string }
	}
	if err := json.Unmarshal(body, &options); err != nil || options.Preconditions.UID != o.Metadata.UID {
		refuse(w, http.StatusConflict, "Precondition failed")
		return
	}
	c.put(path, o, "DELETED")
	reply(w, map[string]any{"kind": "Status", "status": "Success"})
}

// list serves pages of two, whatever the limit.
func (c *cluster) list(w http.ResponseWriter, r *http.Request, collection string) {
	var names []string
	for path := range c.objects {
		if strings.HasPrefix(path, collection+"/") && path > r.URL.Query().Get("continue") {
			names = append(names, path)
		}
	}
	slices.Sort(names)
	page := map[string]any{"metadata": map[string]string{}}
	if len(names) > 2 {
		page["metadata"], names = map[string]string{"continue": names[1]}, names[:2]
	}
	var items []object
	for _, path := range names {
		o := c.objects[path]
		o.APIVersion, o.Kind = "", "" // as in real lists
		if label := r.URL.Query().Get("labelSelector"); label == "" || label == managedBy+"="+o.Metadata.Labels[managedBy] {
			items = append(items, o)
		}
	}
	page["items"] = items
	reply(w, page)
}

// watch streams the events after a version.
func (c *cluster) watch(w http.ResponseWriter, r *http.Request, collection string) {
	name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if !ok || err != nil {
		refuse(w, http.StatusBadRequest, "want a name and a version")
		return
	}
	for out := http.NewResponseController(w); ; {
		_ = out.Flush()
		c.mu.Lock()
		events, news := slices.Clone(c.events), c.news
		c.mu.Unlock()
		for _, e := range events {
			if e.version > from && e.path == collection+"/"+name {
				reply(w, e.event)
				from = e.version
			}
		}
		_ = out.Flush()
		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
	}
}

// review allows what the test has not taken away.
func (c *cluster) review(w http.ResponseWriter, body []byte) {
	var asked struct {
		Kind string
		Spec struct{ ResourceAttributes map[string]string }
	}
	a := &asked.Spec.ResourceAttributes
	if err := json.Unmarshal(body, &asked); err != nil || asked.Kind != "SelfSubjectAccessReview" || (*a)["verb"] == "" {
		refuse(w, http.StatusBadRequest, "no review")
		return
	}
	c.mu.Lock()
	forbidden := c.plain["no "+(*a)["verb"]] != ""
	c.mu.Unlock()
	reply(w, map[string]any{"status": map[string]bool{"allowed": !forbidden}})
}

// answers makes the server answer all calls of a verb with a status.
func (c *cluster) answers(verb string, status int, header, body string) {
	c.set(func() {
		c.answer = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != verb || r.URL.Query().Get("watch") != "" {
				return false
			}
			if header != "" {
				w.Header().Set("Retry-After", header)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return true
		}
	})
}
