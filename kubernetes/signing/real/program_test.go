//go:build e2e && linux

package real_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/pages"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// deployment is a real cluster with the manifests' rights, and the program countersign-ra in as
// many replicas as the test starts. They share a CA in a folder.
type deployment struct {
	site
	folder  string // of the CA
	rules   string
	signing string // settings for CertificateSigningRequests
	rate    int    // calls of the CA a second
	lease   string // how long one lives
	more    string // settings
	bundle  string // settings of the signer's trust bundle, besides its name
}

// deploy applies the base and components of it.
func deploy(t testing.TB, c *kubetest.Cluster, components ...string) *deployment {
	t.Helper()
	c.Namespace(home)
	kustomization := "resources: [BASE]\n"
	for i, name := range components {
		components[i] = "BASE/" + name
	}
	if len(components) > 0 {
		kustomization += "components: [" + strings.Join(components, ", ") + "]\n"
	}
	applyManifests(t, c, kustomization)
	return &deployment{site: site{c, t}, folder: filepath.Join(proctest.Folder(t), "ca"), rules: podRule, rate: 1000, lease: "15s"}
}

// podRule gives the names that [policy] gives.
const podRule = `
- name: pods
  match: {kinds: [pod], namespaces: [shop]}
  names: {spiffe_id: "spiffe://example.org/ns/{namespace}/sa/{serviceAccount}", dns_names: ["{pod}.{namespace}.svc"]}
`

// The provider file, and one that signs as it does and can be away and counts its calls.
const (
	shipped  = "{name: file, settings: {dir: FOLDER, self_signed: true}}"
	counting = "{name: file, provider: moody, settings: {dir: FOLDER, self_signed: true, calls: DIR/calls, outage: DIR/outage, asks: '', mood: DIR/mood, accept: DIR/accept}}"
)

// settings are those of a replica; DIR is its folder.
const settings = `
cluster: {id: home, kubeconfig: DIR/kube.yaml}
dev: true
providers: [PROVIDER]
authorities: [{name: file, limits: {rate: RATE}}]
signers:
- name: example.com/mesh
  pod_certificates: {enabled: true}
  certificate_requests: {SIGNING}
  trust_bundle: {name: "example.com:mesh:bundle"BUNDLE}
rules: RULES
audit: {file: DIR/audit.log}
leader_election: {duration: LEASE}
status: {address: 'unix:DIR/page'}
`

// replica is a running countersign-ra.
type replica struct {
	*proctest.Process
	t      testing.TB
	dir    string
	killed bool
}

// start starts a replica with a provider. It ends with the test, by SIGTERM.
func (d *deployment) start(provider string) *replica {
	d.t.Helper()
	r := &replica{t: d.t, dir: proctest.Folder(d.t)}
	text := strings.NewReplacer("PROVIDER", provider, "RULES", d.rules, "SIGNING", d.signing, "RATE", strconv.Itoa(d.rate), "LEASE", d.lease, "BUNDLE", d.bundle).Replace(settings) + d.more
	write(d.t, r.dir, "ra.yaml", strings.NewReplacer("DIR", r.dir, "FOLDER", d.folder).Replace(text))
	write(d.t, r.dir, "kube.yaml", string(d.Kubeconfig(d.Account(home, us))))
	d.t.Cleanup(func() {
		if code := r.Ended().ExitCode(); code != 0 && !r.killed {
			d.t.Errorf("it ended with %d", code)
		}
	})
	cmd := exec.Command(programs.Path(d.t, "countersign-ra"), "serve", "--config", filepath.Join(r.dir, "ra.yaml"))
	cmd.Dir = r.dir
	cmd.Env = append(proctest.Environ(r.dir), "COUNTERSIGN_PROVIDER_PATH="+programs.Folder(d.t, "countersign-provider-file", "countersign-provider-moody"))
	r.Process = proctest.Start(d.t, cmd)
	return r
}

// kill ends it as a node's crash does.
func (r *replica) kill() {
	r.killed = true
	r.Kill()
}

// status is what the test reads of the program's.
type status struct {
	NotReady string `json:"not_ready"`
	Leader   struct{ Leading bool }
	Clusters []struct {
		ID       string
		NotReady string `json:"not_ready"`
		Mesh     *meshStatus
	}
	Authorities []struct{ Roots []rootStatus }
}

type rootStatus struct {
	Fingerprint, Phase string
	Since, Until       time.Time
}

// root returns what the status says of a root; nothing, if that is unknown.
func (s status) root(fingerprint string) rootStatus {
	for _, a := range s.Authorities {
		for _, r := range a.Roots {
			if r.Fingerprint == fingerprint {
				return r
			}
		}
	}
	return rootStatus{}
}

func (r *replica) status(ctx context.Context) (s status, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/status.json", http.NoBody)
	if err != nil {
		return s, err
	}
	answer, err := pages.Client("unix:" + filepath.Join(r.dir, "page")).Do(req)
	if err != nil {
		return s, err
	}
	defer answer.Body.Close()
	return s, json.NewDecoder(answer.Body).Decode(&s)
}

// await returns when the status says so.
func (r *replica) await(what string, so func(status) bool) {
	r.t.Helper()
	kubetest.Await(r.t, r.String()+": "+what, func(ctx context.Context) (bool, error) {
		if r.Ended() != nil {
			r.t.Fatalf("%s ended:\n%s", r, r.Log)
		}
		s, err := r.status(ctx)
		return err == nil && so(s), fmt.Errorf("%+v, %w", s, err)
	})
}

// awaitLeading returns when it signs.
func (r *replica) awaitLeading() {
	r.t.Helper()
	r.await("it does not sign", func(s status) bool { return s.NotReady == "" && s.Leader.Leading })
}

// awaitFollowing returns when it waits for the Lease that another has.
func (r *replica) awaitFollowing() {
	r.t.Helper()
	r.await("it does not follow", func(s status) bool { return s.NotReady == "" && !s.Leader.Leading })
}

// calls returns the IDs of the requests that its CA has signed.
func (r *replica) calls() []string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// audited is a line of the audit log.
type audited struct {
	Time                        time.Time
	Event, Object, Serial, Root string
	RequestID                   string `json:"request_id"`
	Subject                     struct{ Cluster, Pod string }
}

func (r *replica) audit() (all []audited) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "audit.log"))
	must(r.t, err)
	for line := range strings.Lines(string(text)) {
		var a audited
		must(r.t, json.Unmarshal([]byte(line), &a))
		all = append(all, a)
	}
	return all
}

func TestRealPodsTrustEachOtherWithTheProgramAndFile(t *testing.T) {
	d := deploy(t, kubetest.Start(t, kubetest.Options{Nodes: true}))
	r := d.start(shipped)
	r.awaitLeading()
	d.checkPods(t)
	issued := map[string]int{}
	for _, a := range r.audit() {
		if a.Event == "issued" {
			issued[a.Subject.Pod]++
		}
	}
	if len(issued) != 2 || issued["web-0"] != 1 || issued["database-0"] != 1 {
		t.Errorf("the audit log has these certificates: %v", issued)
	}
}
