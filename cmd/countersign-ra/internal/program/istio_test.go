package program

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	caAddress = "countersign-ra.countersign.svc"
	webID     = "spiffe://cluster.local/ns/shop/sa/web"
	eastID    = "spiffe://east.local/ns/shop/sa/web"
)

// forMesh is a configuration for a mesh of two clusters.
const forMesh = `
cluster: {kubeconfig: DIR/kube.yaml}
remotes: {folder: DIR/remotes}
dev: true
providers: [{name: file, settings: {dir: DIR/ca, self_signed: true}}]
istio:
  listen: 127.0.0.1:0
  certificate: {dns_names: [countersign-ra.countersign.svc]}
  node_proxies: [istio-system/ztunnel]
rules:
- name: mesh
  match: {requests: [istio]}
  names: {spiffe_id: "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}
- name: east
  match: {requests: [istio], clusters: [east]}
  names: {spiffe_id: "spiffe://east.local/ns/{namespace}/sa/{serviceAccount}"}
audit: {file: DIR/audit.log}
leader_election: {duration: 5s}
status: {address: 'unix:DIR/page'}
`

// ledElsewhere is the API server of a cluster whose leader is another replica.
func ledElsewhere(t *testing.T) *apiServer {
	t.Helper()
	home := newAPIServer(t)
	home.Put(object{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"namespace": "countersign", "name": "countersign-ra"},
		"spec": object{"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")},
	})
	home.Put(object{ // the other has received no root yet
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "countersign", "name": "countersign-ra"}, "data": map[string]any{"file": "{}"},
	})
	return home
}

// newMesh starts a replica that another leads, with the clusters home and east.
func newMesh(t *testing.T, text string) (r *replica, home, east *apiServer) {
	t.Helper()
	home, east = ledElsewhere(t), newAPIServer(t)
	home.addToken("web-token", bound{"shop", "web", "web-0"}, "n1")
	home.addToken("ztunnel-token", bound{"istio-system", "ztunnel", "ztunnel-1"}, "n1")
	east.addToken("east-token", bound{"shop", "web", "web-0"}, "n1")
	dir := files(t, home, text)
	if err := os.Mkdir(filepath.Join(dir, "remotes"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "remotes", "east.yaml"), east.kubeconfig())
	r = start(t, dir)
	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
	return r, home, east
}

// A replica that does not lead serves a mesh as well.
func TestEachReplicaServesAMesh(t *testing.T) {
	t.Parallel()
	r, _, _ := newMesh(t, forMesh)
	conn := r.dial(t, r.root(t))
	as(t, conn, "web-token", "").gets(nil, webID)
	as(t, conn, "web-token", "Kubernetes").gets(nil, webID)
	as(t, conn, "east-token", "east").gets(nil, eastID)
	as(t, conn, "east-token", "Kubernetes").refused(nil, codes.Unauthenticated)
	as(t, conn, "web-token", "east").refused(nil, codes.Unauthenticated)
	as(t, conn, "web-token", "west").refused(nil, codes.Unauthenticated)
	as(t, conn, "forged", "").refused(nil, codes.Unauthenticated)
	as(t, conn, "ztunnel-token", "").gets(impersonate(webID), webID)
	as(t, conn, "ztunnel-token", "").refused(impersonate("spiffe://cluster.local/ns/shop/sa/api"), codes.PermissionDenied)
	as(t, conn, "web-token", "").refused(impersonate(webID), codes.PermissionDenied)

	r.until(t, "its calls are counted", func() bool { // one that succeeds after its reply
		calls := r.report(t).Istio.Calls
		return calls[istioca.Issued] >= 4 && calls[istioca.Denied] == 2
	})
	said := r.report(t)
	if said.Leader.Leading || said.Istio.NotReady != "" || len(said.Istio.Authorities) != 1 {
		t.Errorf("%+v %+v", said.Leader, said.Istio)
	}
	metrics := r.measures(t,
		`countersign_ra_istio_calls_total{result="denied"} 2`, `istio_calls_total{result="unrenewable"} 0`, `istio_calls_total{result="copied"} 0`,
		"countersign_ra_istio_ready 1", `countersign_ra_roots{authority="file",engine="istio",phase="trusted"} 1`,
		`countersign_ra_outcomes_total{authority="file",result="issued",rule="east"} 1`, "countersign_ra_istio_certificate_expiry_timestamp_seconds ",
		`countersign_ra_outcomes_total{authority="file",result="denied",rule="mesh"} 2`)
	out, errs, code := says(t, nil, "status", "--address", "unix:"+filepath.Join(r.dir, "page"))
	shown := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{"Waiting: another leads. No problems.", "ISTIO'S CA API", "denied 2", "east issued 1", "file 0 0 4.85/s 4.85/s - 0"} {
		if code != 0 || !strings.Contains(shown, want) {
			t.Errorf("status does not show %q: %d\n%s%s", want, code, out, errs)
		}
	}
	if code, page := r.page("/"); code != http.StatusOK || !strings.Contains(page, "<h2>Istio's CA API</h2>") || strings.Contains(page, "ZgotmplZ") {
		t.Errorf("the page: %d\n%s", code, page)
	}
	if log := read(t, filepath.Join(r.dir, "audit.log")); strings.Count(log, `"event":"refused"`) != 2 || !strings.Contains(log, "no pod of that service account runs on the node of the caller") {
		t.Errorf("the audit log:\n%s", log)
	}
	for _, text := range []string{r.Log.String(), metrics, out, read(t, filepath.Join(r.dir, "audit.log"))} {
		if strings.Contains(text, "web-token") || strings.Contains(text, "forged") {
			t.Error("a token is shown")
		}
	}
}

// A pod that is gone is refused although its token's review is remembered.
func TestDeletedPodIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	r, home, _ := newMesh(t, forMesh)
	c := as(t, r.dial(t, r.root(t)), "web-token", "")
	c.gets(nil, webID)
	home.Remove("pods", "shop", "web-0")
	c.refused(nil, codes.Unauthenticated)
}

func TestReloadRefusesWhoIsTakenOut(t *testing.T) {
	t.Parallel()
	r, _, _ := newMesh(t, forMesh)
	conn := r.dial(t, r.root(t))
	web, east, proxy := as(t, conn, "web-token", ""), as(t, conn, "east-token", "east"), as(t, conn, "ztunnel-token", "")
	web.gets(nil, webID)
	east.gets(nil, eastID)
	proxy.gets(impersonate(webID), webID)

	path := filepath.Join(r.dir, "c.yaml")
	text := read(t, path)
	reload := func(text, says string) {
		t.Helper()
		write(t, path, text)
		before := strings.Count(r.Log.String(), says)
		r.Signal(syscall.SIGHUP)
		r.until(t, says, func() bool { return strings.Count(r.Log.String(), says) > before })
	}
	const taken, kept = "configuration applied", "cannot apply the configuration"
	reload(strings.ReplaceAll(text, "rules:", "wrongs:"), kept)
	reload(strings.ReplaceAll(text, "names: {spiffe_id: \"spiffe://east", "authority: other\n  names: {spiffe_id: \"spiffe://east"), kept)
	east.gets(nil, eastID)

	reload(strings.ReplaceAll(text, "  node_proxies: [istio-system/ztunnel]\n", "  clusters: [Kubernetes]\n"), taken)
	east.refused(nil, codes.Unauthenticated)
	proxy.refused(impersonate(webID), codes.PermissionDenied)
	web.gets(nil, webID)

	reload(strings.ReplaceAll(text, "spiffe://east.local", "spiffe://west.local"), taken)
	east.gets(nil, "spiffe://west.local/ns/shop/sa/web")
	proxy.gets(impersonate(webID), webID)

	before, _, _ := strings.Cut(text, "- name: east")
	_, after, _ := strings.Cut(text, "audit:")
	reload(before+"audit:"+after, taken) // the trust domain of east is gone
	east.refused(nil, codes.PermissionDenied)
	web.gets(nil, webID)

	const signer = "istio-system/fast"
	fast := map[string]any{"CertSigner": signer}
	web.refused(fast, codes.PermissionDenied)
	reload(strings.ReplaceAll(text, "rules:\n", "rules:\n- name: fast\n  match: {requests: [istio], cert_signers: ["+signer+"]}\n  names: {spiffe_id: \"spiffe://fast.local/ns/{namespace}/sa/{serviceAccount}\"}\n"), taken)
	web.gets(fast, "spiffe://fast.local/ns/shop/sa/web")
	reload(text, taken)
	web.refused(fast, codes.PermissionDenied)
	web.gets(nil, webID)

	reload(strings.ReplaceAll(text, "127.0.0.1:0", "127.0.0.1:1"), "changed settings need a restart")
	if _, text := r.page("/status.json"); !strings.Contains(text, `"restart_pending": [`) || !strings.Contains(text, path) {
		t.Error(text)
	}
	if !strings.Contains(r.Log.String(), "settings=istio.listen") {
		t.Error(r.Log.String())
	}
	east.gets(nil, eastID)
	// A cluster that goes is refused without a signal.
	if err := os.Remove(filepath.Join(r.dir, "remotes", "east.yaml")); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the cluster is gone", func() bool {
		_, err := east.ask(nil)
		return grpcstatus.Code(err) == codes.Unauthenticated
	})
}

// inFiles returns the configuration of a mesh whose server has its certificate from files, and what
// writes another one into them.
func inFiles(t *testing.T) (text, dir string, ca *certtest.Pair, issue func(life time.Duration)) {
	t.Helper()
	ca, dir = certtest.Root(t), t.TempDir()
	issue = func(life time.Duration) {
		template := certtest.Leaf(t, life)
		template.DNSNames = []string{caAddress}
		pair := ca.Issue(t, template)
		key, err := pki.EncodeKey(pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "key.pem"), string(key))
		write(t, filepath.Join(dir, "chain.pem"), string(pki.EncodeCertificates([]*x509.Certificate{pair.Cert})))
	}
	issue(time.Hour)
	text = strings.ReplaceAll(forMesh, "{dns_names: [countersign-ra.countersign.svc]}", "{chain_file: "+dir+"/chain.pem, key_file: "+dir+"/key.pem}")
	return text, dir, ca, issue
}

// A client whose connection is refused finds another replica; one that meets a TLS alert may not.
func TestReplicaWithoutACertificateDoesNotListen(t *testing.T) {
	t.Parallel()
	text, dir, ca, issue := inFiles(t)
	first, _, _ := newMesh(t, text)
	first.Stop(syscall.SIGTERM)
	if err := os.Remove(filepath.Join(dir, "chain.pem")); err != nil {
		t.Fatal(err)
	}
	r := start(t, first.dir)
	r.until(t, "it lacks its certificate", func() bool {
		_, text := r.page("/status.json")
		return strings.Contains(text, "the certificate of Istio's CA API is missing")
	})
	if address := r.report(t).Istio.Address; address != "127.0.0.1:0" {
		t.Errorf("it listens on %s", address)
	}
	issue(time.Hour)
	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
	as(t, r.dial(t, pki.EncodeCertificates([]*x509.Certificate{ca.Cert})), "web-token", "").gets(nil, webID)
}

// It would refuse all of them.
func TestReplicaThatDoesNotKnowTheClientCAsIsNotReady(t *testing.T) {
	t.Parallel()
	text, _, _, _ := inFiles(t)
	api := ledElsewhere(t)
	known := make(chan struct{})
	api.late.Store(&known)
	read := sync.OnceFunc(func() { close(known) })
	t.Cleanup(read) // before the server ends
	r := start(t, files(t, api, text))
	r.until(t, "it lacks them alone", func() bool {
		_, said := r.page("/readyz")
		return strings.Contains(said, "the client CAs of cluster") && r.report(t).Istio.Address != "127.0.0.1:0"
	})
	read()
	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
}

// Its certificate ends while it runs: who is connected is served, and who connects finds another replica.
func TestReplicaWhoseCertificateEndsStopsListening(t *testing.T) {
	t.Parallel()
	text, _, ca, issue := inFiles(t)
	r, _, _ := newMesh(t, text)
	address, root := r.report(t).Istio.Address, pki.EncodeCertificates([]*x509.Certificate{ca.Cert})
	connected := as(t, r.dial(t, root), "web-token", "")
	connected.gets(nil, webID)
	var noticed time.Time
	r.until(t, "it refuses connections", func() bool {
		if time.Now().After(noticed) { // a busy replica may find one that has ended, and keeps the former then
			issue(10 * time.Second)
			noticed = time.Now().Add(20 * time.Second)
		}
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	if code, why := r.page("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(why, "the certificate of Istio's CA API is missing") {
		t.Errorf("/readyz: %d %s", code, why)
	}
	connected.gets(nil, webID)
	issue(time.Hour)
	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
	as(t, r.dial(t, root), "web-token", "").gets(nil, webID)
}

func TestCertificateFromFilesRotatesUnderTheListener(t *testing.T) {
	t.Parallel()
	text, _, ca, issue := inFiles(t)
	r, _, _ := newMesh(t, text)
	shown := func() string {
		conn, err := tls.Dial("tcp", r.report(t).Istio.Address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // #nosec G402 -- only looked at
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := shown()
	issue(time.Hour)
	r.until(t, "the next certificate is shown", func() bool { return shown() != first })
	as(t, r.dial(t, pki.EncodeCertificates([]*x509.Certificate{ca.Cert})), "web-token", "").gets(nil, webID)
}

// Whoever signs for this CA could sign an administrator.
func TestAuthorityThatTheAPIServerTrustsIsNotAskedForAMesh(t *testing.T) {
	t.Parallel()
	r, home, _ := newMesh(t, forMesh)
	root := r.root(t)
	as(t, r.dial(t, root), "web-token", "").gets(nil, webID)
	r.Stop(syscall.SIGTERM)
	home.Put(object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "kube-system", "name": "extension-apiserver-authentication"},
		"data": map[string]any{"client-ca-file": string(root)},
	})
	second := start(t, r.dir)
	second.until(t, "it is ready", func() bool { return second.readyz() == http.StatusOK })
	as(t, second.dial(t, root), "web-token", "").refused(nil, codes.Unavailable)
	second.until(t, "it is told", func() bool {
		return strings.Contains(strings.Join(problemsOf(second.report(t)), "\n"), "An authority is not asked for a mesh")
	})
}

// The leader has two engines, which write one audit log and one record.
func TestLeaderServesPodsAndAMesh(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	api.addPod(t, "shop", "web-0")
	api.addToken("web-token", bound{"shop", "web", "web-0"}, "node")
	text := strings.ReplaceAll(usual, "rules:", "istio: {listen: '127.0.0.1:0', certificate: {dns_names: [countersign-ra.countersign.svc]}}\nrules:\n- name: mesh\n  match: {requests: [istio]}\n  names: {spiffe_id: 'spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}'}")
	r := start(t, files(t, api, text))
	r.until(t, "the pod has a certificate", func() bool { return api.chain(t, "shop", "web-0") != nil })
	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
	as(t, r.dial(t, r.root(t)), "web-token", "").gets(nil, webID)
	rules := map[string]int{}
	for text := range strings.Lines(read(t, filepath.Join(r.dir, "audit.log"))) {
		var line struct{ Event, Rule string }
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		if line.Event == "issued" {
			rules[line.Rule]++
		}
	}
	if rules["pods"] != 1 || rules["mesh"] != 1 || rules["istio-certificate"] != 1 {
		t.Errorf("%v", rules)
	}
	if _, metrics := r.page("/metrics"); !strings.Contains(metrics, `countersign_ra_roots{authority="file",engine="kubernetes",phase="trusted"} 1`) || !strings.Contains(metrics, `countersign_ra_roots{authority="file",engine="istio",phase="trusted"} 1`) {
		t.Error(metrics)
	}
}

// Two replicas share what the authority allows, and one that ends gives back what it had.
func TestReplicasOfAMeshShareQuotas(t *testing.T) {
	t.Parallel()
	first, home, _ := newMesh(t, forMesh)
	dir := files(t, home, forMesh)
	if err := os.Mkdir(filepath.Join(dir, "remotes"), 0o700); err != nil {
		t.Fatal(err)
	}
	second := start(t, dir)
	rate := func(r *replica) float64 {
		if said := r.report(t).Istio; said != nil && len(said.Authorities) == 1 {
			return said.Authorities[0].Rate
		}
		return 0
	}
	var conns []caller // a share is looked at when somebody asks
	for _, r := range []*replica{first, second} {
		r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
		conns = append(conns, as(t, r.dial(t, r.root(t)), "web-token", ""))
	}
	half := func() bool {
		a, b := rate(first), rate(second)
		return a > 2 && a < 2.6 && b > 2 && b < 2.6
	}
	first.until(t, "each has half", half)
	for _, c := range conns {
		c.gets(nil, webID)
	}
	second.Stop(syscall.SIGTERM)
	first.until(t, "one has all", func() bool { return rate(first) > 4.8 })

	shared := func(want string) func() bool {
		return func() bool {
			_, metrics := first.page("/metrics")
			return strings.Contains(metrics, `countersign_ra_quota_shared{engine="istio"} `+want)
		}
	}
	first.until(t, "it shares them", shared("1"))
	home.away.Store(true)
	first.until(t, "it cannot share them", shared("0"))
	if told := strings.Join(problemsOf(first.report(t)), "\n"); !strings.Contains(told, "The quotas of istio cannot be shared") {
		t.Error(told)
	}
	out, _, _ := says(t, nil, "status", "--address", "unix:"+filepath.Join(first.dir, "page"))
	if !strings.Contains(out, "QUOTAS OF") || !strings.Contains(out, "ServiceUnavailable") && !strings.Contains(out, "countersign-ra-shares") {
		t.Error(out)
	}
	home.away.Store(false)
	first.until(t, "it shares them again", shared("1"))
}
