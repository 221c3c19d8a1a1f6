package program

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/programtest"
	"github.com/countersign-dev/countersign/internal/test/pages"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const patience = 2 * time.Minute

func TestMain(m *testing.M) { programtest.Main(m, Run) }

const (
	signer     = "example.com/mesh"
	bundleName = "example.com:mesh:bundle"
)

// usual is a configuration; DIR is its folder.
const usual = `
cluster: {kubeconfig: DIR/kube.yaml}
dev: true
providers: [{name: file, settings: {dir: DIR/ca, self_signed: true}}]
signers:
- name: example.com/mesh
  pod_certificates: {enabled: true}
  trust_bundle: {name: "example.com:mesh:bundle"}
rules:
- name: pods
  match: {kinds: [pod]}
  names: {spiffe_id: "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}
audit: {file: DIR/audit.log}
leader_election: {duration: 5s}
status: {address: 'unix:DIR/page'}
`

// files makes those of a service, and returns their folder.
func files(t *testing.T, api *apiServer, text string) (dir string) {
	t.Helper()
	dir = proctest.Folder(t)
	write(t, filepath.Join(dir, "c.yaml"), strings.ReplaceAll(text, "DIR", dir))
	if api != nil {
		write(t, filepath.Join(dir, "kube.yaml"), api.kubeconfig())
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// command is the program with arguments, in an environment of its own.
func command(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return programtest.Command(ctx, t, environment(t), args...)
}

func environment(t *testing.T) environ.Vars {
	t.Helper()
	return programtest.Environment(t, "countersign-provider-file", "countersign-provider-minimal")
}

// says runs a command that serves nothing, in this process.
func says(t *testing.T, env environ.Vars, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs strings.Builder
	code = Run(t.Context(), args, env, cli.IO{In: strings.NewReader(""), Out: &out, Err: &errs})
	return out.String(), errs.String(), code
}

// replica is a running service.
type replica struct {
	*proctest.Process
	dir   string
	kills bool // the test kills it
}

// start runs a service on the files of a folder; it ends with the test, by SIGTERM.
func start(t *testing.T, dir string) *replica {
	t.Helper()
	return launch(t, dir, command(context.WithoutCancel(t.Context()), t, "serve", "--config", filepath.Join(dir, "c.yaml")))
}

func launch(t *testing.T, dir string, cmd *exec.Cmd) *replica {
	t.Helper()
	r := &replica{dir: dir}
	t.Cleanup(func() {
		if code := r.Ended().ExitCode(); code != 0 && !r.kills {
			t.Errorf("it ended with %d:\n%s", code, r.Log)
		}
	})
	r.Process = proctest.Start(t, cmd)
	t.Cleanup(func() { r.Stop(syscall.SIGTERM) })
	return r
}

// page asks the page at its socket; 0 if it does not answer.
func (r *replica) page(path string) (code int, text string) {
	return pages.Get(pages.Client("unix:"+filepath.Join(r.dir, "page")), path)
}

// report is what its status says.
func (r *replica) report(t *testing.T) (said status.Report) {
	t.Helper()
	code, text := r.page("/status.json")
	if err := json.Unmarshal([]byte(text), &said); code != http.StatusOK || err != nil {
		t.Fatalf("%d, %v: %s", code, err, text)
	}
	return said
}

// until waits for what another process does.
func (r *replica) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	r.Until(t, patience, what, is, func() string { _, text := r.page("/status.json"); return text })
}

// measures returns the metrics once they have these series: a call is counted after its result
// can be seen.
func (r *replica) measures(t *testing.T, series ...string) (metrics string) {
	t.Helper()
	r.until(t, fmt.Sprintf("the metrics have %q", series), func() bool {
		_, metrics = r.page("/metrics")
		return !slices.ContainsFunc(series, func(one string) bool { return !strings.Contains(metrics, one) })
	})
	return metrics
}

func (r *replica) readyz() int {
	code, _ := r.page("/readyz")
	return code
}

// addPod puts a pod's objects and its certificate request.
func (s *apiServer) addPod(t *testing.T, namespace, name string) {
	t.Helper()
	old := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	meta := func(namespace, name, uid string) map[string]any {
		return map[string]any{"namespace": namespace, "name": name, "uid": uid, "creationTimestamp": old}
	}
	s.Put(object{"apiVersion": "v1", "kind": "Node", "metadata": meta("", "node", "n")})
	s.Put(object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(namespace, "web", "s")})
	s.Put(object{
		"apiVersion": "v1", "kind": "Pod", "metadata": meta(namespace, name, "p-"+name),
		"spec": object{"nodeName": "node", "serviceAccountName": "web"}, "status": object{"phase": "Pending"},
	})
	request := meta(namespace, name, "r-"+name)
	request["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	s.Put(object{
		"apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest", "metadata": request,
		"spec": object{
			"signerName": signer, "podName": name, "podUID": "p-" + name, "serviceAccountName": "web", "serviceAccountUID": "s",
			"nodeName": "node", "nodeUID": "n", "maxExpirationSeconds": 86400, "stubPKCS10Request": base64.StdEncoding.EncodeToString(csrOf(t, &x509.CertificateRequest{})), // a kubelet's is empty
		},
	})
}

// csrOf signs a CSR by a new key.
func csrOf(t *testing.T, template *x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// signingRequest is a CertificateSigningRequest of a user for a SPIFFE ID.
func signingRequest(t *testing.T, user, id string) object {
	t.Helper()
	uri, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csrOf(t, &x509.CertificateRequest{URIs: []*url.URL{uri}})})
	return object{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"name": user, "uid": "c-" + user, "creationTimestamp": time.Now().UTC().Format(time.RFC3339)},
		"spec": object{
			"signerName": signer, "username": user, "request": base64.StdEncoding.EncodeToString(text),
			"usages": []string{"digital signature", "client auth"}, "expirationSeconds": 3600,
		},
	}
}

// chain returns a pod's certificate; nil while there is none.
func (s *apiServer) chain(t *testing.T, namespace, name string) []*x509.Certificate {
	t.Helper()
	text, _ := s.get("podcertificaterequests", namespace, name).At("status", "certificateChain").(string)
	if text == "" {
		return nil
	}
	chain, err := pki.ParseCertificates([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return chain
}
