//go:build e2e && certmanager && linux

package real_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	cmutil "github.com/cert-manager/cert-manager/pkg/api/util"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/providers/kubernetes/kubeca"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// issuers are cert-manager's own: a root that signs itself, and an issuer by it.
const issuers = `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {namespace: shop, name: self}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {namespace: shop, name: root}
spec:
  isCA: true
  commonName: mesh
  secretName: root
  privateKey: {algorithm: ECDSA}
  issuerRef: {name: self}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {namespace: shop, name: mesh}
spec: {ca: {secretName: root}}
`

// agentOf returns settings of an agent with all rights that the provider uses, and no others.
func (s *site) agentOf(issuer string) kubeca.Settings {
	s.t.Helper()
	user := s.ServiceAccount("shop", "agent")
	for _, verb := range []string{"create", "get", "watch", "delete", "list"} {
		s.Bind("shop", user, rbacv1.PolicyRule{APIGroups: []string{"cert-manager.io"}, Resources: []string{"certificaterequests"}, Verbs: []string{verb}})
	}
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	must(s.t, os.WriteFile(path, s.Kubeconfig(s.Account("shop", "agent")), 0o600))
	return kubeca.Settings{Issuer: &kubeca.Issuer{Name: issuer}, Namespace: "shop", Kubeconfig: setting.File(path)}
}

// The provider `kubernetes` with cert-manager's own controllers and issuers.
func TestRealProviderGetsCertificatesFromIssuers(t *testing.T) {
	s := prepare(t)
	settings := s.agentOf("mesh")
	with, err := kubeca.Open(settings)
	must(t, err)
	for _, d := range settings.ValidateOnline(t.Context()) {
		t.Errorf("%+v", d)
	}
	ask := func(req ca.SignRequest) <-chan error {
		done, ctx := make(chan error, 1), testkit.Within(t, patience)
		go func() {
			for {
				if _, err := with.CSRSign(ctx, req); !errors.Is(err, ca.ErrUnavailable) || ctx.Err() != nil {
					done <- err
					return
				}
			}
		}()
		return done
	}

	// Nobody approves yet, so that we can deny.
	req, key := testkit.Request(t, "spiffe://example.org/ns/shop/sa/web", "web.example.org")
	done := ask(req)
	kubetest.Await(t, "there is no request", func(context.Context) (bool, error) { return len(s.requests()) == 1, nil })
	asked := s.requests()[0]
	cmutil.SetCertificateRequestCondition(&asked, cmapi.CertificateRequestConditionDenied, cmmeta.ConditionTrue, "ByHand", "by the test")
	must(t, s.client.Status().Update(t.Context(), &asked))
	testkit.Fails(t, <-done, "there-is-no-token-in-it", ca.ErrDenied, "was denied: ByHand: by the test")

	s.write("issuers.yaml", issuers)
	s.kubectl("apply", "-f", "issuers.yaml")
	s.manage()
	must(t, <-ask(req))
	reply, err := with.CSRSign(t.Context(), req) // again, as if the reply was lost
	must(t, err)
	testkit.Passes(t, reply, testkit.Check(t, req, key))
	for _, left := range s.requests() {
		if left.Labels["app.kubernetes.io/managed-by"] == "countersign-provider-kubernetes" {
			t.Errorf("%s is left", left.Name)
		}
	}
}
