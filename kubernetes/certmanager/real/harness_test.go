//go:build e2e && certmanager && linux

// Package real_test runs the issuer with cert-manager's own controllers and a real API server.
package real_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cmutil "github.com/cert-manager/cert-manager/pkg/api/util"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	issuerapi "github.com/cert-manager/issuer-lib/api/v1alpha1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/certmanager/v1alpha1"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the test's own client
	code := m.Run()
	_ = programs.Remove()
	os.Exit(code)
}

const (
	home, account = "countersign", "countersign-ra"
	group         = "countersign.dev"
	web           = "web.shop.apps.example.org"
)

// site is a real cluster with cert-manager's types, and the shipped program with the manifests'
// rights.
type site struct {
	*kubetest.Cluster
	t      *testing.T
	client client.Client
	folder string
	ra     *proctest.Process
}

// open starts a cluster and the program with a configuration: DIR is its folder.
func open(t *testing.T, config string, flags ...string) *site {
	t.Helper()
	s := prepare(t, flags...)
	s.start(config)
	return s
}

// prepare starts a cluster with all types, and what the manifests have.
func prepare(t *testing.T, flags ...string) *site {
	t.Helper()
	s := &site{Cluster: kubetest.Start(t, kubetest.Options{Flags: flags}), t: t, folder: proctest.Folder(t)}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{cmapi.AddToScheme, v1alpha1.AddToScheme, corev1.AddToScheme} {
		must(t, add(scheme))
	}
	http, err := rest.HTTPClientFor(s.Config())
	must(t, err)
	t.Cleanup(http.CloseIdleConnections)
	s.Namespace(home, "shop", "bank", "brief")
	s.write("kubeconfig", string(s.AdminKubeconfig()))
	s.kubectl("apply", "--server-side", "-f", filepath.Join(programs.Foreign(t, "COUNTERSIGN_CERT_MANAGER"), "crds"))
	s.kustomize("resources: [BASE]\ncomponents: [BASE/cert-manager]\n")
	s.kubectl("wait", "--for=condition=Established", "--timeout=180s", "crd", "--all")
	s.client, err = client.New(s.Config(), client.Options{Scheme: scheme, HTTPClient: http})
	must(t, err)
	return s
}

// kustomize applies a kustomization as operators do; BASE is the base's folder.
func (s *site) kustomize(text string) {
	s.t.Helper()
	base, err := filepath.Rel(s.folder, programs.File(s.t, "deploy/kustomize/ra")) // kustomize takes no absolute path
	must(s.t, err)
	s.write("kustomization.yaml", strings.ReplaceAll(text, "BASE", base))
	s.kubectl("apply", "--server-side", "-k", ".")
}

func (s *site) kubectl(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(programs.Foreign(s.t, "COUNTERSIGN_KUBERNETES"), "kubectl"), args...)
	cmd.Dir, cmd.Env = s.folder, []string{"HOME=" + s.folder, "KUBECONFIG=kubeconfig"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// start starts the program. It ends with the test.
func (s *site) start(config string) {
	s.t.Helper()
	s.write("ra.yaml", strings.ReplaceAll(config, "DIR", s.folder))
	s.write("account", string(s.Kubeconfig(s.Account(home, account))))
	cmd := exec.Command(programs.Path(s.t, "countersign-ra"), "serve", "--config", filepath.Join(s.folder, "ra.yaml"))
	cmd.Dir = s.folder
	cmd.Env = append(proctest.Environ(s.folder), "COUNTERSIGN_PROVIDER_PATH="+programs.Folder(s.t, "countersign-provider-file", "countersign-provider-moody"))
	s.ra = proctest.Start(s.t, cmd)
	s.t.Cleanup(func() {
		if state := s.ra.Ended(); state != nil && state.ExitCode() != 0 {
			s.t.Errorf("it ended with %d", state.ExitCode())
		}
	})
}

// manage starts cert-manager's controllers.
func (s *site) manage() {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(programs.Foreign(s.t, "COUNTERSIGN_CERT_MANAGER"), "certmanager"), filepath.Join(s.folder, "kubeconfig"))
	cmd.Dir, cmd.Env = s.folder, proctest.Environ(s.folder)
	proctest.Start(s.t, cmd)
}

func (s *site) write(name, content string) {
	s.t.Helper()
	must(s.t, os.WriteFile(filepath.Join(s.folder, name), []byte(content), 0o600))
}

// config has a CA in a folder that can be away and counts its calls.
const config = `
cluster: {id: home, kubeconfig: DIR/account}
dev: true
providers: [{name: ca, provider: moody, accept_longer_ttl: true, settings: {dir: DIR/ca, self_signed: true, calls: DIR/calls, outage: DIR/outage, asks: '', mood: DIR/mood, accept: DIR/accept}}]
authorities: [{name: ca, limits: {rate: 1000}}]
cert_manager: {authorities: [{name: ca, cluster_issuers: true, namespaces: [shop]}]}
rules:
- name: apps
  match: {requests: [cert-manager], namespaces: [shop]}
  names: {requested: ["*.{namespace}.apps.example.org"]}
- name: brief
  match: {requests: [cert-manager], namespaces: [brief]}
  names: {requested: ["*.{namespace}.apps.example.org"]}
  max_ttl: 30s
budget: {holder_every: 7s}
audit: {file: DIR/audit.log}
leader_election: {duration: 15s}
status: {address: 'unix:DIR/page'}
`

// calls returns how many certificates the CA was asked for.
func (s *site) calls() int {
	text, err := os.ReadFile(filepath.Join(s.folder, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

func (s *site) create(objects ...client.Object) {
	s.t.Helper()
	for _, o := range objects {
		must(s.t, s.client.Create(s.t.Context(), o))
	}
}

// await returns when an object is as it should be.
func await[T client.Object](s *site, what string, object T, so func(T) bool) T {
	s.t.Helper()
	kubetest.Await(s.t, what, func(ctx context.Context) (bool, error) {
		if s.ra != nil && s.ra.Ended() != nil {
			s.t.Fatalf("%s ended:\n%s", s.ra, s.ra.Log)
		}
		err := s.client.Get(ctx, client.ObjectKeyFromObject(object), object)
		return err == nil && so(object), err
	})
	return object
}

func issuer(authority string) *v1alpha1.CountersignIssuer {
	i := &v1alpha1.CountersignIssuer{Spec: v1alpha1.IssuerSpec{Authority: authority}}
	i.Namespace, i.Name = "shop", "issuer"
	return i
}

func clusterIssuer() *v1alpha1.CountersignClusterIssuer {
	i := &v1alpha1.CountersignClusterIssuer{Spec: v1alpha1.IssuerSpec{Authority: "ca"}}
	i.Name = "issuer"
	return i
}

// says returns the condition Ready of an issuer: its status and message.
func says(i issuerapi.Issuer) (status metav1.ConditionStatus, message string) {
	for _, c := range i.GetConditions() {
		if c.Type == "Ready" && c.ObservedGeneration == i.GetGeneration() {
			return c.Status, c.Message
		}
	}
	return "", ""
}

func isReady[T issuerapi.Issuer](i T) bool {
	status, _ := says(i)
	return status == metav1.ConditionTrue
}

// certificate is one of the namespace shop by the cluster issuer.
func certificate(name string, dnsNames ...string) *cmapi.Certificate {
	c := &cmapi.Certificate{Spec: cmapi.CertificateSpec{
		SecretName: name, DNSNames: dnsNames, PrivateKey: &cmapi.CertificatePrivateKey{Algorithm: cmapi.ECDSAKeyAlgorithm},
		IssuerRef: cmmeta.IssuerReference{Group: group, Kind: "CountersignClusterIssuer", Name: "issuer"},
	}}
	c.Namespace, c.Name = "shop", name
	return c
}

func certified(revision int) func(*cmapi.Certificate) bool {
	return func(c *cmapi.Certificate) bool {
		return cmutil.CertificateHasConditionWithObservedGeneration(c, cmapi.CertificateCondition{
			Type: cmapi.CertificateConditionReady, Status: cmmeta.ConditionTrue, ObservedGeneration: c.Generation,
		}) && c.Status.Revision != nil && *c.Status.Revision == revision
	}
}

// requests are the CertificateRequests of the namespace shop.
func (s *site) requests() []cmapi.CertificateRequest {
	s.t.Helper()
	var all cmapi.CertificateRequestList
	must(s.t, s.client.List(s.t.Context(), &all, client.InNamespace("shop")))
	return all.Items
}

// reason returns the condition Ready of a request: its reason and message.
func reason(r *cmapi.CertificateRequest) (reason, message string) {
	if c := cmutil.GetCertificateRequestCondition(r, cmapi.CertificateRequestConditionReady); c != nil {
		return c.Reason, c.Message
	}
	return "", ""
}

var must = fatal.If
