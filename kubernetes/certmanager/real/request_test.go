//go:build e2e && certmanager && linux

package real_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cmutil "github.com/cert-manager/cert-manager/pkg/api/util"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// request is one by hand for the cluster issuer: nobody approves it.
func (s *site) request(name string) *cmapi.CertificateRequest {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(s.t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{name + ".shop.apps.example.org"}}, key)
	must(s.t, err)
	r := &cmapi.CertificateRequest{Spec: cmapi.CertificateRequestSpec{
		Request:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		IssuerRef: cmmeta.IssuerReference{Group: group, Kind: "CountersignClusterIssuer", Name: "issuer"},
	}}
	r.Namespace, r.Name = "shop", name
	s.create(r)
	return r
}

// say approves or denies a request.
func (s *site) say(r *cmapi.CertificateRequest, word cmapi.CertificateRequestConditionType) {
	s.t.Helper()
	cmutil.SetCertificateRequestCondition(r, word, cmmeta.ConditionTrue, "ByHand", "by the test")
	must(s.t, s.client.Status().Update(s.t.Context(), r))
}

func issued(r *cmapi.CertificateRequest) bool { return len(r.Status.Certificate) > 0 }

// auditPolicy has the API server note what our account does.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["system:serviceaccount:countersign:countersign-ra"]}
- {level: None}
`

// What nobody has approved is left alone, and what was denied is never signed. The account has
// exactly the rights that the program uses.
func TestRealRequestsNeedApprovalAndLeastRights(t *testing.T) {
	folder := t.TempDir()
	policy, log := filepath.Join(folder, "policy.yaml"), filepath.Join(folder, "audit.log")
	must(t, os.WriteFile(policy, []byte(auditPolicy), 0o600))
	s := open(t, config, "--audit-policy-file="+policy, "--audit-log-path="+log)
	s.create(clusterIssuer(), issuer("ca"))
	await(s, "the cluster issuer is ready", clusterIssuer(), isReady)
	await(s, "the issuer is ready", issuer("ca"), isReady)

	waiting, denied, approved := s.request("open"), s.request("denied"), s.request("approved")
	s.say(denied, cmapi.CertificateRequestConditionDenied)
	s.say(approved, cmapi.CertificateRequestConditionApproved)
	await(s, "the approved request is issued", approved, issued)
	await(s, "the other is there", waiting, func(*cmapi.CertificateRequest) bool { return true })
	if len(waiting.Status.Conditions) > 0 || s.calls() != 1 {
		t.Errorf("nobody approved it, and it is %+v, after %d calls", waiting.Status, s.calls())
	}
	s.checkPatches(waiting)
	s.say(waiting, cmapi.CertificateRequestConditionApproved)
	await(s, "it is issued after its approval", waiting, issued)
	await(s, "the denied request is there", denied, func(*cmapi.CertificateRequest) bool { return true })
	if issued(denied) || s.calls() != 2 {
		t.Errorf("the denied request is %+v, after %d calls", denied.Status, s.calls())
	}

	granted, used := s.granted(), map[string]bool{}
	kubetest.Await(t, "each right is used", func(context.Context) (bool, error) { // events are sent after what they report
		used = usedRights(t, log)
		for right := range granted {
			if !used[right] {
				return false, fmt.Errorf("the right to %s is not used", right)
			}
		}
		return true, nil
	})
	for right := range used {
		if !granted[right] {
			t.Errorf("%s is used, and no right", right)
		}
	}
}

// checkPatches demands what the door counts on: a dry run that changes nothing is taken, and the status of a
// version that is not current is not written.
func (s *site) checkPatches(r *cmapi.CertificateRequest) {
	s.t.Helper()
	patch := func(kind types.PatchType, body string, params ...string) error {
		call := s.ClientFor(s.Account("countersign", "countersign-ra")).Discovery().RESTClient().Patch(kind).
			AbsPath("/apis/cert-manager.io/v1/namespaces", r.Namespace, "certificaterequests", r.Name, "status")
		for _, param := range params {
			name, value, _ := strings.Cut(param, "=")
			call.Param(name, value)
		}
		return call.Body([]byte(body)).Do(s.t.Context()).Error()
	}
	if err := patch(types.MergePatchType, "{}", "dryRun=All"); err != nil {
		s.t.Errorf("a dry run of a status: %v", err)
	}
	stale := fmt.Sprintf(`{"apiVersion":"cert-manager.io/v1","kind":"CertificateRequest","metadata":{"name":%q,"resourceVersion":"1"},"status":{"certificate":"YQ=="}}`, r.Name)
	if err := patch(types.ApplyPatchType, stale, "fieldManager=test", "force=true"); !apierrors.IsConflict(err) {
		s.t.Errorf("the status of another version: %v, want a conflict", err)
	}
}

// granted returns the rights of the component.
func (s *site) granted() map[string]bool {
	s.t.Helper()
	role, err := s.Client().RbacV1().ClusterRoles().Get(s.t.Context(), "countersign-ra-cert-manager", metav1.GetOptions{})
	must(s.t, err)
	all := map[string]bool{}
	for _, rule := range role.Rules {
		maps.Copy(all, rights(rule))
	}
	return all
}

func rights(rule rbacv1.PolicyRule) map[string]bool {
	all := map[string]bool{}
	for _, resource := range rule.Resources {
		for _, verb := range rule.Verbs {
			all[verb+" "+resource] = true
		}
	}
	return all
}

// usedRights returns what our account did with the objects of these APIs, by the API server's log, and what it
// seldom does: an event that is repeated is patched, and a server that streams no lists is asked for them.
func usedRights(t *testing.T, log string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(log)
	must(t, err)
	used := map[string]bool{"patch events": true, "list certificaterequests": true, "list countersignissuers": true, "list countersignclusterissuers": true}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var call struct {
			Verb      string
			ObjectRef struct{ APIGroup, Resource, Subresource string }
		}
		must(t, json.Unmarshal(line, &call))
		o := call.ObjectRef
		if slices.Contains([]string{"cert-manager.io", group, "events.k8s.io"}, o.APIGroup) {
			used[strings.TrimSuffix(fmt.Sprintf("%s %s/%s", call.Verb, o.Resource, o.Subresource), "/")] = true
		}
	}
	return used
}

// The program may be there before cert-manager and our types, and says so.
func TestRealProgramWaitsForTheTypes(t *testing.T) {
	s := prepare(t)
	s.kubectl("delete", "crd", "countersignissuers.countersign.dev", "countersignclusterissuers.countersign.dev")
	s.start(config)
	s.ra.Log.Await(t, patience, "that the types are missing", func(text string) bool {
		return strings.Contains(text, "cannot follow the requests of cert-manager")
	})
	s.kustomize("resources: [BASE]\ncomponents: [BASE/cert-manager]\n")
	s.kubectl("wait", "--for=condition=Established", "--timeout=90s", "crd", "--all")
	s.create(clusterIssuer())
	await(s, "the cluster issuer is ready", clusterIssuer(), isReady)
}
