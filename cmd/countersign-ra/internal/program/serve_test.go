package program

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestPodGetsCertificateAndEverythingIsRecorded(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	api.addPod(t, "shop", "web-0")
	r := start(t, files(t, api, usual))
	r.until(t, "the pod has a certificate", func() bool { return api.chain(t, "shop", "web-0") != nil })

	leaf := api.chain(t, "shop", "web-0")[0]
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://cluster.local/ns/shop/sa/web" {
		t.Errorf("its names are %v", leaf.URIs)
	}
	r.until(t, "the trust bundle is written", func() bool { return api.get("clustertrustbundles", "", bundleName) != nil })
	roots, err := pki.ParseBundle([]byte(api.get("clustertrustbundles", "", bundleName).At("spec", "trustBundle").(string)))
	if err != nil || leaf.CheckSignatureFrom(roots.Certificates()[0]) != nil {
		t.Errorf("the leaf is not below the bundle: %v", err)
	}

	var line struct {
		Event, Rule, Authority, Serial string
		Subject                        struct{ Namespace, Pod string }
	}
	audit := filepath.Join(r.dir, "audit.log")
	// The first reply may be discarded: by it, the engine learns how much the CA backdates.
	lines := strings.Split(strings.TrimSpace(read(t, audit)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &line); err != nil || line.Event != "issued" || line.Rule != "pods" || line.Authority != "file" || line.Subject.Pod != "web-0" {
		t.Errorf("the audit log says %v %+v", err, line)
	}
	if info, err := os.Stat(audit); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the audit log: %v, %v", info.Mode(), err)
	}

	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
	metrics := r.measures(t,
		`countersign_ra_outcomes_total{authority="file",result="issued",rule="pods"} 1`, "countersign_ra_leader 1", "countersign_ra_ready 1",
		`countersign_ra_requests_total{cluster="Kubernetes",kind="PodCertificateRequest",result="issued",signer="example.com/mesh"} 1`,
		`countersign_ra_roots{authority="file",engine="kubernetes",phase="trusted"} 1`, `countersign_ra_provider_ready{provider="file"} 1`, `countersign_ra_call_seconds_count{authority="file"} 1`,
		`countersign_ra_pod_requests_protected{cluster="Kubernetes"} 0`)
	if strings.Contains(metrics, "shop") || strings.Contains(metrics, "web-0") {
		t.Error("a metric has a label from a caller")
	}
	out, errs, code := says(t, nil, "status", "--address", "unix:"+filepath.Join(r.dir, "page"))
	shown := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{"Signing. Problems: 1.", "Every user who may create PodCertificateRequests in Kubernetes", "file 0 0 5/s 5/s - 0", "trusted", bundleName + " Kubernetes example.com/mesh file 1 -"} {
		if code != 0 || !strings.Contains(shown, want) {
			t.Errorf("status does not show %q: %d\n%s%s", want, code, out, errs)
		}
	}
	if code, page := r.page("/"); code != http.StatusOK || !strings.Contains(page, bundleName) || strings.Count(page, "<script") != 1 || strings.Contains(page, "ZgotmplZ") {
		t.Errorf("the page: %d\n%s", code, page)
	}
}

func TestAuditLogIsOpenedAnewOnHangup(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	r := start(t, files(t, api, usual))
	audit := filepath.Join(r.dir, "audit.log")
	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
	if err := os.Rename(audit, audit+".1"); err != nil {
		t.Fatal(err)
	}
	r.Signal(syscall.SIGHUP)
	r.until(t, "the file is there again", func() bool { _, err := os.Stat(audit); return err == nil })
	api.addPod(t, "shop", "web-0")
	r.until(t, "the new file has the line", func() bool { return strings.Contains(read(t, audit), "web-0") })
	if read(t, audit+".1") != "" {
		t.Error("the old file was written")
	}
}

func TestFollowerIsReadyAndSignsNothing(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	api.Put(object{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"namespace": "countersign", "name": "countersign-ra"},
		"spec": object{"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")},
	})
	api.addPod(t, "shop", "web-0")
	r := start(t, files(t, api, usual))
	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
	said := r.report(t)
	if said.Leader.Leading || said.Leader.Holder != "another" || len(said.Authorities) != 0 || said.NotReady != "" {
		t.Errorf("%+v", said)
	}
	if api.Called("", "podcertificaterequests") != 0 || api.chain(t, "shop", "web-0") != nil {
		t.Error("a follower follows requests")
	}
	if _, metrics := r.page("/metrics"); !strings.Contains(metrics, "countersign_ra_leader 0") {
		t.Error(metrics)
	}
}

func TestLeaseIsReleasedAtTheEnd(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	r := start(t, files(t, api, usual))
	r.until(t, "it leads", func() bool {
		code, _ := r.page("/status.json")
		return code == http.StatusOK && r.report(t).Leader.Leading
	})
	r.Stop(syscall.SIGTERM)
	if code := r.Ended().ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, r.Log)
	}
	if holder := api.get("leases", "countersign", "countersign-ra").At("spec", "holderIdentity"); holder != nil && holder != "" {
		t.Errorf("%v holds the Lease", holder)
	}
}

func TestAPIServerThatIsAwayAtStartIsWaitedFor(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	api.away.Store(true)
	api.addPod(t, "shop", "web-0")
	r := start(t, files(t, api, usual))
	r.until(t, "the Lease cannot be reached", func() bool {
		code, text := r.page("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "the Lease cannot be reached")
	})
	if code, _ := r.page("/healthz"); code != http.StatusOK {
		t.Errorf("it is not alive: %d", code)
	}
	api.away.Store(false)
	r.until(t, "the pod has a certificate", func() bool { return api.chain(t, "shop", "web-0") != nil })
}

// A provider that refuses its settings is the business of its own rules.
func TestBrokenProviderDelaysItsOwnRulesOnly(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	api.addPod(t, "bank", "web-1")
	api.addPod(t, "shop", "web-0")
	text := strings.ReplaceAll(usual, "providers: [", "default_provider: file\nproviders: [{name: broken, provider: file, settings: {dir: /dev/null/none}}, ")
	text = strings.ReplaceAll(text, "rules:", "rules:\n- name: bank\n  match: {namespaces: [bank]}\n  names: {spiffe_id: 'spiffe://cluster.local/bank'}\n  authority: broken")
	r := start(t, files(t, api, text))
	r.until(t, "the pod has a certificate", func() bool { return api.chain(t, "shop", "web-0") != nil })
	if status := api.get("podcertificaterequests", "bank", "web-1").At("status", "conditions"); status != nil {
		t.Errorf("the other's request ended: %v", status)
	}
	if said := strings.Join(problemsOf(r.report(t)), "\n"); !strings.Contains(said, "Provider broken is not ready") {
		t.Error(said)
	}
}

func problemsOf(r status.Report) (all []string) {
	for _, t := range r.Problems() {
		all = append(all, t.What)
	}
	return all
}

func TestReplicaWithoutLeaderElectionSigns(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	api.addPod(t, "shop", "web-0")
	r := start(t, files(t, api, strings.ReplaceAll(usual, "{duration: 5s}", "{enabled: false}")))
	r.until(t, "the pod has a certificate", func() bool { return api.chain(t, "shop", "web-0") != nil })
	if api.Called("", "leases") != 0 || !r.report(t).Leader.Leading {
		t.Errorf("%+v", r.report(t).Leader)
	}
}

// A leader that is killed leaves its Lease behind; the other replica takes over.
func TestOtherReplicaTakesOverFromKilledLeader(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	first := start(t, files(t, api, usual))
	first.until(t, "it is ready", func() bool { return first.readyz() == http.StatusOK })
	second := start(t, files(t, api, strings.ReplaceAll(usual, "DIR/ca", filepath.Join(first.dir, "ca"))))
	second.until(t, "it is ready", func() bool { return second.readyz() == http.StatusOK })
	leader, other := first, second
	first.until(t, "one leads", func() bool {
		if second.report(t).Leader.Leading { // a busy first one has lost its Lease
			leader, other = second, first
		}
		return leader.report(t).Leader.Leading
	})
	leader.kills = true
	leader.Kill()
	api.addPod(t, "shop", "web-0")
	other.until(t, "the pod has a certificate", func() bool { return api.chain(t, "shop", "web-0") != nil })
}

// A remote cluster is served by a rule that names it, and has its own trust bundle.
func TestRemoteClusterIsServed(t *testing.T) {
	t.Parallel()
	home, east := newAPIServer(t), newAPIServer(t)
	dir := files(t, home, strings.ReplaceAll(usual, "{kinds: [pod]}", "{kinds: [pod], clusters: [east]}")+"remotes: {folder: DIR/remotes}\n")
	if err := os.Mkdir(filepath.Join(dir, "remotes"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "remotes", "east.yaml"), east.kubeconfig())
	home.addPod(t, "shop", "web-0")
	east.addPod(t, "shop", "web-0")
	r := start(t, dir)
	r.until(t, "the remote pod has a certificate", func() bool { return east.chain(t, "shop", "web-0") != nil })
	r.until(t, "both have the bundle", func() bool {
		return home.get("clustertrustbundles", "", bundleName) != nil && east.get("clustertrustbundles", "", bundleName) != nil
	})
	r.until(t, "the local pod is denied", func() bool {
		conditions, _ := home.get("podcertificaterequests", "shop", "web-0").At("status", "conditions").([]any)
		return len(conditions) == 1 && object(conditions[0].(map[string]any))["type"] == "Denied"
	})
	if east.Called("", "leases") != 0 || home.Called("", "secrets")+east.Called("", "secrets") != 0 {
		t.Error("more is read than is needed")
	}
	// A cluster that goes is served no more.
	if err := os.Remove(filepath.Join(dir, "remotes", "east.yaml")); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the cluster is gone", func() bool { return len(r.report(t).Clusters) == 1 })
}

// A signer of this CA could sign an administrator.
func TestAuthorityThatTheAPIServerTrustsIsNotAsked(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	dir := files(t, api, usual)
	first := start(t, dir)
	first.until(t, "the CA's root is known", func() bool { return api.get("clustertrustbundles", "", bundleName) != nil })
	first.Stop(syscall.SIGTERM)
	api.Put(object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "kube-system", "name": "extension-apiserver-authentication"},
		"data": map[string]any{"client-ca-file": api.get("clustertrustbundles", "", bundleName).At("spec", "trustBundle")},
	})
	api.addPod(t, "shop", "web-0")
	second := start(t, dir)
	second.until(t, "the authority is not asked", func() bool { return strings.Contains(second.Log.String(), "authority not asked") })
	if said := strings.Join(problemsOf(second.report(t)), "\n"); !strings.Contains(said, "as Kubernetes trusts it with its API") {
		t.Error(said)
	}
	if request := api.get("podcertificaterequests", "shop", "web-0"); request.At("status") != nil {
		t.Errorf("the request ended: %v", request.At("status"))
	}
	if text := read(t, filepath.Join(dir, "audit.log")); strings.Contains(text, "web-0") {
		t.Errorf("audit log: %s", text)
	}
}

// A replica that takes over reads the client CAs before it asks an authority, and asks then without a pause.
func TestRequestsWaitForTheClientCAs(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	known := make(chan struct{})
	api.late.Store(&known)
	read := sync.OnceFunc(func() { close(known) })
	t.Cleanup(read) // before the server ends
	api.addPod(t, "shop", "web-0")
	r := start(t, files(t, api, usual+"mesh: {istiod: {enabled: true}}\n"))
	r.until(t, "the CA's root is published", func() bool { return api.get("clustertrustbundles", "", bundleName) != nil })
	if r.readyz() == http.StatusOK {
		t.Error("ready, and the client CAs are not known")
	}
	for _, c := range api.Calls() { // beside which the root was published, after the CA's start
		if c.Resource == "podcertificaterequests" || c.Resource == "secrets" {
			t.Errorf("sooner than the client CAs, it read what to order: %s of %s %s", c.Verb, c.Resource, c.Name)
		}
	}
	read()
	r.until(t, "the pod has a certificate", func() bool { return api.chain(t, "shop", "web-0") != nil })
	r.until(t, "istiod has one", func() bool { return api.get("secrets", "istio-system", "istiod-tls") != nil })
	if strings.Contains(r.Log.String(), "authority not asked") {
		t.Errorf("it logged:\n%s", r.Log)
	}
}

// A kubelet's CSR has no names, so an authority that signs only those of a CSR is of no use.
func TestAuthorityThatCannotCertifyNamesIsReported(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	api.addPod(t, "shop", "web-0")
	r := start(t, files(t, api, strings.ReplaceAll(usual, "{name: file, settings: {dir: DIR/ca, self_signed: true}}", "{name: minimal}")))
	r.until(t, "it is shown", func() bool {
		code, _ := r.page("/status.json")
		return code == http.StatusOK && strings.Contains(r.report(t).Unable, `the authority "minimal" signs only what a CSR names`)
	})
	if request := api.get("podcertificaterequests", "shop", "web-0"); request.At("status") != nil {
		t.Errorf("the request ended: %v", request.At("status"))
	}
}

func TestCertificateSigningRequestIsApprovedAndSigned(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	text := strings.ReplaceAll(usual, "  pod_certificates: {enabled: true}", "  certificate_requests: {enabled: true, approve: true}")
	text = strings.ReplaceAll(text, "{kinds: [pod]}", "{kinds: [user]}")
	text = strings.ReplaceAll(text, "ns/{namespace}/sa/{serviceAccount}", "user/{user}")
	api.Put(signingRequest(t, "ann", "spiffe://cluster.local/user/ann"))
	api.Put(signingRequest(t, "eve", "spiffe://cluster.local/user/ann"))
	r := start(t, files(t, api, text))
	ended := func(name string) string {
		o := api.get("certificatesigningrequests", "", name)
		said, _ := json.Marshal(o.At("status", "conditions"))
		if o.At("status", "certificate") != nil {
			return "signed " + string(said)
		}
		return string(said)
	}
	r.until(t, "ann has a certificate", func() bool {
		said := ended("ann")
		return strings.Contains(said, "signed") && strings.Contains(said, `"type":"Approved"`)
	})
	r.until(t, "eve is denied", func() bool { return strings.Contains(ended("eve"), `"type":"Denied"`) })
	if said := ended("eve"); strings.Contains(said, "signed") {
		t.Error(said)
	}
}

// Without the right to sign, say. Two requests show that it is no fault of theirs.
func TestCertificatesThatCannotBeWrittenAreReported(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	api.rude.Store(true)
	api.addPod(t, "shop", "web-0")
	api.addPod(t, "shop", "web-1")
	r := start(t, files(t, api, usual))
	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
	var told status.Shut
	r.until(t, "it is shown", func() bool {
		for _, k := range r.report(t).Clusters {
			for _, told = range k.Shut {
				return true
			}
		}
		return false
	})
	if told.Signer != signer || told.Requests != "PodCertificateRequests" || len(told.Owners) != 1 || told.Owners[0] != "shop" || !strings.Contains(told.Right, "podcertificaterequests/status") || !told.NextTrial.After(told.Since) {
		t.Errorf("%+v", told)
	}
	out, errs, code := says(t, nil, "status", "--address", "unix:"+filepath.Join(r.dir, "page"))
	for _, want := range []string{"No certificate can be written into PodCertificateRequests of " + signer, "NEXT TRIAL"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("status does not show %q: %d\n%s%s", want, code, out, errs)
		}
	}
	if _, page := r.page("/"); !strings.Contains(page, "the right to update podcertificaterequests/status, and to sign for "+signer) || !strings.Contains(page, "cannot be written since") {
		t.Errorf("the page lacks what to do:\n%s", page)
	}
	api.rude.Store(false)
	r.until(t, "the pods have certificates", func() bool { return api.chain(t, "shop", "web-0") != nil && api.chain(t, "shop", "web-1") != nil })
	r.until(t, "it is shown no more", func() bool { return len(r.report(t).Clusters[0].Shut) == 0 })
}
