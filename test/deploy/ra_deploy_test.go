//go:build e2e

package deploy_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// ownRA is an overlay as the base's comment describes it.
const ownRA = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: mesh
resources: [BASE/ra]
components: [BASE/ra/requests, BASE/ra/approval, BASE/ra/remotes, BASE/ra/istio, BASE/ra/mesh, BASE/ra/istiod, BASE/ra/bundle-endpoint, BASE/ra/federation]
images: [{name: countersign, newName: example.org/countersign, newTag: "1"}]
configMapGenerator:
  - name: countersign-ra-config
    behavior: merge
    literals: ["ra.yaml=cluster: {system_namespace: mesh}"]
replacements:
  - sourceValue: signers.example.org/mesh
    targets:
      - select: {kind: ClusterRole, name: countersign-ra-signer}
        fieldPaths: [rules.0.resourceNames.0]
      - select: {kind: ValidatingAdmissionPolicy, name: countersign-ra-pod-certificates}
        fieldPaths: [spec.matchConditions.0.expression]
        options: {delimiter: "'", index: 1}
      - select: {kind: ValidatingAdmissionPolicy, name: countersign-ra-federation}
        fieldPaths: [spec.validations.0.expression]
        options: {delimiter: "'", index: 1}
  - sourceValue: signers.example.org:mesh:bundle
    targets:
      - select: {kind: ClusterRole, name: countersign-ra-bundles}
        fieldPaths: [rules.0.resourceNames.0]
`

func TestRealAPIServerAcceptsManifestsOfTheRA(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	restricted(t, c, "countersign")
	restricted(t, c, "mesh")
	for namespace, text := range map[string]string{"countersign": built(t, withRequests, nil), "mesh": built(t, ownRA, nil)} {
		apply(t, c, text, "--dry-run=server")
		runsRestricted(t, c, text, namespace)
	}
	apply(t, c, built(t, "resources: [BASE/ra/rights]", nil), "--dry-run=server")
	apply(t, c, built(t, "resources: [BASE/ra/rights]\ncomponents: [BASE/ra/istio/rights]", nil), "--dry-run=server")
}

func TestOverlayReplacesSignerEverywhere(t *testing.T) {
	text := built(t, ownRA, nil)
	for _, left := range []string{"example.com", "image: countersign", "namespace: countersign"} {
		if strings.Contains(text, left) {
			t.Errorf("%q is left:\n%s", left, text)
		}
	}
	expressions := map[string]string{}
	for _, o := range objects(t, text, "ValidatingAdmissionPolicy") {
		var policy admissionv1.ValidatingAdmissionPolicy
		must(t, json.Unmarshal(o.text, &policy))
		expressions[policy.Name+" for"] = policy.Spec.MatchConditions[0].Expression
		expressions[policy.Name] = policy.Spec.Validations[0].Expression
	}
	if got := expressions["countersign-ra-pod-certificates for"]; got != "object.spec.signerName in ['signers.example.org/mesh']" {
		t.Error(got)
	}
	if got := expressions["countersign-ra-federation"]; got != "has(oldObject.spec.signerName) && oldObject.spec.signerName in ['signers.example.org/mesh']" {
		t.Error(got)
	}
}

// Approval is a right of its own.
func TestBaseOfTheRAApprovesNothing(t *testing.T) {
	for kustomization, want := range map[string]bool{
		"resources: [BASE/ra]": false, "resources: [BASE/ra]\ncomponents: [BASE/ra/requests]": false, withRequests: true,
	} {
		has := false
		for _, o := range objects(t, built(t, kustomization, nil), "ClusterRole") {
			var role rbacv1.ClusterRole
			must(t, json.Unmarshal(o.text, &role))
			for _, rule := range role.Rules {
				has = has || strings.Contains(fmt.Sprint(rule.Verbs, rule.Resources), "appro")
			}
		}
		if has != want {
			t.Errorf("%s: it may approve: %t", kustomization, has)
		}
	}
}

// Nor has the base any right to Secrets.
func TestBaseOfTheRAReadsNoSecrets(t *testing.T) {
	for kustomization, want := range map[string]bool{"resources: [BASE/ra]": false, "resources: [BASE/ra]\ncomponents: [BASE/ra/remotes]": true} {
		text := built(t, kustomization, nil)
		has := false
		for _, o := range slices.Concat(objects(t, text, "Role"), objects(t, text, "ClusterRole")) {
			has = has || strings.Contains(string(o.text), "secrets")
		}
		if has != want {
			t.Errorf("%s: it may read Secrets: %t", kustomization, has)
		}
	}
}

// A mesh is a component: without it nobody's token is reviewed, and no port is open.
func TestBaseOfTheRAServesNoMesh(t *testing.T) {
	for kustomization, want := range map[string]bool{"resources: [BASE/ra]": false, "resources: [BASE/ra]\ncomponents: [BASE/ra/istio]": true} {
		text := built(t, kustomization, nil)
		for what, has := range map[string]bool{
			"reviews tokens": strings.Contains(text, "tokenreviews"), "has a Service": len(objects(t, text, "Service")) == 1,
			"opens a port": strings.Contains(text, "containerPort: 15012"), "lets callers in": strings.Contains(text, "port: grpc-ca\n"),
			"is outside the mesh": outsideMesh(t, text),
		} {
			if has != want {
				t.Errorf("%s: it %s: %t", kustomization, what, has)
			}
		}
	}
}

// outsideMesh reports whether the pods get neither a sidecar nor a ztunnel: they start before both.
func outsideMesh(t *testing.T, text string) bool {
	t.Helper()
	var d appsv1.Deployment
	must(t, json.Unmarshal(objects(t, text, "Deployment")[0].text, &d))
	labels := d.Spec.Template.Labels
	return labels["sidecar.istio.io/inject"] == "false" && labels["istio.io/dataplane-mode"] == "none"
}

// docs/istio.md has its operator build this.
func TestKustomizationOfAMeshInDocsIsBuilt(t *testing.T) {
	page, err := os.ReadFile(programs.File(t, "docs/istio.md"))
	must(t, err)
	_, block, _ := strings.Cut(string(page), "# kustomization.yaml\n")
	block, _, _ = strings.Cut(block, "```")
	_, config, _ := strings.Cut(string(page), "# ra.yaml\n")
	config, _, _ = strings.Cut(config, "```")
	text := built(t, strings.ReplaceAll(block, "github.com/countersign-dev/countersign/deploy/kustomize", "BASE"), map[string]string{"ra.yaml": config, "vault-root.pem": "PEM"})
	if !outsideMesh(t, text) || !strings.Contains(text, "image: registry.example.org/countersign-ra") || !strings.Contains(text, "node_proxies: [istio-system/ztunnel]") {
		t.Error(text)
	}
}

// as returns the client of a user who may do anything, so that the policy alone can refuse.
func as(t *testing.T, c *kubetest.Cluster, user string) kubernetes.Interface {
	t.Helper()
	config := c.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

func csrDER(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	must(t, err)
	return der
}

func csrPEM(t *testing.T) []byte {
	t.Helper()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csrDER(t)})
}

func TestRealPolicyLetsOnlyThePodsNodeRequest(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	c.Namespace("countersign", "shop")
	ask := func(user, signer, node string) error {
		r := &certificatesv1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"},
			Spec: certificatesv1.PodCertificateRequestSpec{
				SignerName: signer, PodName: "web", PodUID: "1", ServiceAccountName: "web", ServiceAccountUID: "2",
				NodeName: types.NodeName(node), NodeUID: "3", StubPKCS10Request: csrDER(t),
			},
		}
		_, err := as(t, c, user).CertificatesV1().PodCertificateRequests("shop").Create(context.Background(), r, metav1.CreateOptions{DryRun: dry})
		return err
	}
	const ours, other = "example.com/mesh", "example.com/other"
	if err := ask("eve", ours, "node-1"); err != nil {
		t.Fatalf("without the policy: %v", err)
	}
	apply(t, c, built(t, "resources: [BASE/ra/rights]", nil))
	soon(t, "the policy is in force", func() error { return refused(ask("eve", ours, "node-1")) })
	for _, row := range []struct {
		user, signer, node string
		allowed            bool
	}{
		{"system:node:node-1", ours, "node-1", true},
		{"system:node:node-2", ours, "node-1", false},
		{"system:node:", ours, "node-1", false},
		{"system:node:node-1:", ours, "node-1", false},
		{"node-1", ours, "node-1", false},
		{"system:admin", ours, "node-1", false},
		{"system:serviceaccount:countersign:countersign-ra", ours, "node-1", false},
		{"eve", other, "node-1", true},
	} {
		err := ask(row.user, row.signer, row.node)
		if row.allowed != (err == nil) || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s for %s on %s: %v", row.user, row.signer, row.node, err)
		}
	}
	if err := ask("eve", ours, "node-1"); err == nil || !strings.Contains(err.Error(), "only system:node:node-1 may request") {
		t.Errorf("it is told: %v", err)
	}
}
