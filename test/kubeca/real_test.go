//go:build e2e

// Package provider_test runs the provider `kubernetes` against real API servers and the signers
// of kube-controller-manager. The provider's module has no client of Kubernetes to do so.
package kubeca_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/providers/kubernetes/kubeca"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	web      = "spiffe://example.org/ns/shop/sa/web"
	signer   = "kubernetes.io/kube-apiserver-client"
	patience = 2 * time.Minute
	noToken  = ca.Token("there-is-no-token-in-it")
)

// requests are rights to CertificateSigningRequests.
func requests(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: verbs}
}

// site is a cluster with a signer and an agent outside of it.
type site struct {
	*kubetest.Cluster
	*catest.CA
	t    *testing.T
	user string
}

// newSite has an agent with all rights that the provider uses, and no others.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{kubetest.Start(t, kubetest.Options{}), catest.NewCA(catest.Options{}), t, ""}
	files := s.IstioFiles()
	s.Signers(files["ca-cert.pem"], files["ca-key.pem"])
	s.user = s.ServiceAccount("agents", "agent")
	s.Bind("", s.user, requests("create"), requests("get"), requests("watch"), requests("delete"))
	return s
}

// settings are those of the agent.
func (s *site) settings(user *clientcmdapi.AuthInfo) kubeca.Settings {
	s.t.Helper()
	dir := s.t.TempDir()
	config, bundle := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "roots.pem")
	must(s.t, os.WriteFile(config, s.Kubeconfig(user), 0o600))
	must(s.t, os.WriteFile(bundle, s.Bundle().PEM(), 0o600))
	return kubeca.Settings{SignerName: signer, Kubeconfig: setting.File(config), BundleFile: setting.Certificates(bundle)}
}

func (s *site) agent() *kubeca.CA { return s.open(s.settings(s.Account("agents", "agent"))) }

func (s *site) open(settings kubeca.Settings) *kubeca.CA {
	s.t.Helper()
	c, err := kubeca.Open(settings)
	must(s.t, err)
	return c
}

var must = fatal.If

// left are the requests in the cluster.
func (s *site) left() []certificatesv1.CertificateSigningRequest {
	s.t.Helper()
	all, err := s.Client().CertificatesV1().CertificateSigningRequests().List(context.Background(), metav1.ListOptions{})
	must(s.t, err)
	return all.Items
}

// say gives a verdict on the one request, as soon as it is there.
func (s *site) say(word certificatesv1.RequestConditionType) (asked certificatesv1.CertificateSigningRequest) {
	s.t.Helper()
	kubetest.Await(s.t, "there is no request", func(ctx context.Context) (bool, error) {
		all, err := s.Client().CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
		if err != nil || len(all.Items) != 1 {
			return false, err
		}
		asked = all.Items[0]
		asked.Status.Conditions = append(asked.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: word, Status: corev1.ConditionTrue, Reason: "ByHand", Message: "by the test",
		})
		_, err = s.Client().CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, asked.Name, &asked, metav1.UpdateOptions{})
		return err == nil, err
	})
	return asked
}

type result struct {
	reply ca.Certificate
	err   error
}

// start asks in the background, as the host would: again after what is unavailable, and after
// what else the test expects.
func start(t *testing.T, with *kubeca.CA, req ca.SignRequest, again ...*ca.Error) <-chan result {
	t.Helper()
	done, ctx := make(chan result, 1), testkit.Within(t, patience)
	go func() {
		for {
			reply, err := with.CSRSign(ctx, req)
			repeat := errors.Is(err, ca.ErrUnavailable) || slices.ContainsFunc(again, func(e *ca.Error) bool { return errors.Is(err, e) })
			if !repeat || ctx.Err() != nil {
				done <- result{reply, err}
				return
			}
		}
	}()
	return done
}

// signed asks for a certificate, which is approved, and verifies it as an agent does.
func (s *site) signed(with *kubeca.CA) certificatesv1.CertificateSigningRequest {
	s.t.Helper()
	req, key := testkit.Request(s.t, web, "web.example.org")
	done := start(s.t, with, req)
	asked := s.say(certificatesv1.CertificateApproved)
	got := <-done
	must(s.t, got.err)
	check := testkit.Check(s.t, req, key)
	check.Roots = s.Bundle()
	if _, err := check.Chain(got.reply.Chain); err != nil {
		s.t.Fatal(err)
	}
	return asked
}

func TestRealSignerSignsWhatIsApproved(t *testing.T) {
	s := newSite(t)
	asked := s.signed(s.agent())
	if len(s.left()) != 0 || asked.Spec.Username != s.user || *asked.Spec.ExpirationSeconds != 3600 || asked.Spec.SignerName != signer {
		t.Errorf("it asked as %q for %d s of %q; %d are left", asked.Spec.Username, *asked.Spec.ExpirationSeconds, asked.Spec.SignerName, len(s.left()))
	}
	for _, d := range s.settings(s.Account("agents", "agent")).ValidateOnline(t.Context()) {
		t.Errorf("%+v", d)
	}

	// By a client certificate.
	s.Bind("", "machine", requests("create"), requests("get"), requests("watch"), requests("delete"))
	if asked := s.signed(s.open(s.settings(s.User("machine")))); asked.Spec.Username != "machine" {
		t.Errorf("it asked as %q", asked.Spec.Username)
	}

	// With the token of the workload.
	byRequest := s.settings(&clientcmdapi.AuthInfo{})
	byRequest.UseRequestToken = true
	with := s.open(byRequest)
	req, _ := testkit.Request(t, web)
	req.Token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJub2JvZHkifQ.c2lnbmF0dXJl"
	_, err := with.CSRSign(t.Context(), req)
	testkit.Fails(t, err, req.Token, ca.ErrUnauthenticated)
	req.Token = ca.Token(s.Token("agents", "agent"))
	done := start(t, with, req)
	if asked := s.say(certificatesv1.CertificateApproved); asked.Spec.Username != s.user {
		t.Errorf("it asked as %q", asked.Spec.Username)
	}
	must(t, (<-done).err)
}

func TestRealRefusalsAreTold(t *testing.T) {
	s := newSite(t)
	req, _ := testkit.Request(t, web)
	done := start(t, s.agent(), req)
	s.say(certificatesv1.CertificateDenied)
	testkit.Fails(t, (<-done).err, noToken, ca.ErrDenied, "was denied: ByHand: by the test")
	if len(s.left()) != 0 {
		t.Error("it is left")
	}
	wrong := s.settings(s.Account("agents", "agent"))
	wrong.Usages = []string{"digital signature", "server auth"}
	done = start(t, s.open(wrong), req)
	s.say(certificatesv1.CertificateApproved)
	testkit.Fails(t, (<-done).err, noToken, ca.ErrInvalid, "does not fit its signer: SignerValidationFailure")
	if len(s.left()) != 0 {
		t.Error("it is left")
	}
	wrong.SignerName = "kubernetes.io/legacy-unknown"
	_, err := s.open(wrong).CSRSign(t.Context(), req)
	testkit.Fails(t, err, noToken, ca.ErrInvalid, "with 422", "legacy-unknown")
}

// What nobody has approved outlives the call, the provider and the API server, and costs one
// certificate.
func TestRealRequestOutlivesCallAndServer(t *testing.T) {
	s := newSite(t)
	req, _ := testkit.Request(t, web)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := s.agent().CSRSign(ctx, req)
	testkit.Fails(t, err, noToken, ca.ErrPending, "waits for approval")
	first := s.left()[0]
	done := start(t, s.agent(), req, ca.ErrDenied) // a server that has just started does not know all roles yet
	s.Stop()
	s.Resume()
	if asked := s.say(certificatesv1.CertificateApproved); asked.UID != first.UID {
		t.Errorf("there is another request: %s", asked.Name)
	}
	must(t, (<-done).err)
	if len(s.left()) != 0 {
		t.Error("it is left")
	}
}

func TestRealProviderNeedsLeastRights(t *testing.T) {
	s := newSite(t)
	with := func(name string, verbs ...string) kubeca.Settings {
		user := s.ServiceAccount("agents", name)
		for _, verb := range verbs {
			s.Bind("", user, requests(verb))
		}
		return s.settings(s.Account("agents", name))
	}
	says := func(settings kubeca.Settings, want ...string) {
		t.Helper()
		var all []string
		for _, d := range settings.ValidateOnline(t.Context()) {
			all = append(all, d.Summary)
		}
		if got := strings.Join(all, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("the online check says %q", got)
		}
	}
	unseen := with("unseen", "create", "get", "delete")
	says(unseen, "the credential may not watch certificatesigningrequests")
	s.signed(s.open(unseen))

	nothing := with("nothing", "get", "watch", "delete")
	says(nothing, "the credential may not create certificatesigningrequests")
	req, _ := testkit.Request(t, web)
	_, err := s.open(nothing).CSRSign(t.Context(), req)
	testkit.Fails(t, err, noToken, ca.ErrDenied, "with 403", "cannot create resource")

	keeping := with("keeping", "create", "get", "watch")
	says(keeping, "the credential may not delete certificatesigningrequests")
	s.signed(s.open(keeping))
	if len(s.left()) != 1 {
		t.Errorf("%d are left", len(s.left()))
	}
}

func TestRealRootsComeFromTheCluster(t *testing.T) {
	s := newSite(t)
	_, err := s.Client().CoreV1().ConfigMaps("agents").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "roots"}, Data: map[string]string{"ca.crt": string(s.Bundle().PEM())},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = s.Client().CertificatesV1().ClusterTrustBundles().Create(t.Context(), &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "roots"}, Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: string(s.Bundle().PEM())},
	}, metav1.CreateOptions{})
	must(t, err)
	settings := s.settings(s.Account("agents", "agent"))
	settings.BundleFile = ""
	fromMap, fromBundle := settings, settings
	fromMap.ConfigMap, fromBundle.ClusterTrustBundle = &kubeca.ConfigMap{Namespace: "agents", Name: "roots"}, "roots"
	_, err = s.open(fromMap).Roots(t.Context())
	testkit.Fails(t, err, noToken, ca.ErrDenied, "with 403")
	s.Bind("agents", s.user, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"roots"}, Verbs: []string{"get"}})
	s.Bind("", s.user, rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"clustertrustbundles"}, ResourceNames: []string{"roots"}, Verbs: []string{"get"}})
	for _, from := range []kubeca.Settings{fromMap, fromBundle} {
		got, err := s.open(from).Roots(t.Context())
		must(t, err)
		if found, err := pki.ParseBundle(got); err != nil || !found.Equal(s.Bundle()) {
			t.Errorf("%v", err)
		}
	}
}
