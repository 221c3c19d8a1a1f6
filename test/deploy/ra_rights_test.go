//go:build e2e

package deploy_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http/httptest"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applied "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/kubernetes/istiodtls"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/meshroots"
	"github.com/countersign-dev/countersign/kubernetes/owned"
)

const (
	raNamespace = "countersign"
	raAccount   = "countersign-ra"
	raSigner    = "example.com/mesh"
	raBundle    = "example.com:mesh:bundle"
	raPublished = "countersign-ra-bundle"
)

// withRequests is the base with all rights of countersign-ra.
const withRequests = "resources: [BASE/ra]\ncomponents: [BASE/ra/requests, BASE/ra/approval, BASE/ra/remotes, BASE/ra/istio, BASE/ra/mesh, BASE/ra/istiod, BASE/ra/bundle-endpoint]"

// raNeed is something that countersign-ra does, and the verbs of others that it takes besides.
type raNeed struct {
	do   func(context.Context, kubernetes.Interface) error
	also []string
}

var dry = []string{metav1.DryRunAll}

// raNeeds are by role, verb and resource.
var raNeeds = map[string]raNeed{
	"countersign-ra-pods: get podcertificaterequests": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CertificatesV1().PodCertificateRequests("shop").Get(ctx, "x", metav1.GetOptions{}))
	}},
	"countersign-ra-pods: list podcertificaterequests": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CertificatesV1().PodCertificateRequests("").List(ctx, metav1.ListOptions{}))
	}},
	"countersign-ra-pods: watch podcertificaterequests": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return watched(c.CertificatesV1().PodCertificateRequests("").Watch(ctx, metav1.ListOptions{}))
	}},
	"countersign-ra-pods: update podcertificaterequests/status": {do: func(ctx context.Context, c kubernetes.Interface) error {
		r := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "shop"}}
		return got(c.CertificatesV1().PodCertificateRequests("shop").UpdateStatus(ctx, r, metav1.UpdateOptions{}))
	}},
	"countersign-ra-pods: get pods": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().Pods("shop").Get(ctx, "x", metav1.GetOptions{}))
	}},
	"countersign-ra-pods: get serviceaccounts": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().ServiceAccounts("shop").Get(ctx, "x", metav1.GetOptions{}))
	}},
	"countersign-ra-pods: get nodes": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().Nodes().Get(ctx, "x", metav1.GetOptions{}))
	}},
	"countersign-ra-bundles: update clustertrustbundles": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CertificatesV1().ClusterTrustBundles().Update(ctx, trustBundle(""), metav1.UpdateOptions{}))
	}},
	"countersign-ra-bundles: create clustertrustbundles": {do: func(ctx context.Context, c kubernetes.Interface) error {
		b := trustBundle(root)
		b.Name, b.Spec.SignerName = "unlinked", ""
		return got(c.CertificatesV1().ClusterTrustBundles().Create(ctx, b, metav1.CreateOptions{DryRun: dry}))
	}},
	"countersign-ra-signer: attest signers": {also: []string{"countersign-ra-bundles: create clustertrustbundles"}, do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CertificatesV1().ClusterTrustBundles().Create(ctx, trustBundle(root), metav1.CreateOptions{DryRun: dry}))
	}},
	"countersign-ra-signer: sign signers": {
		also: []string{"countersign-ra-requests: get certificatesigningrequests", "countersign-ra-requests: update certificatesigningrequests/status"},
		do: func(ctx context.Context, c kubernetes.Interface) error {
			return changeRequest(ctx, c, func(r *certificatesv1.CertificateSigningRequest) error {
				r.Status.Certificate = []byte(root)
				return got(c.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, r, metav1.UpdateOptions{DryRun: dry}))
			})
		},
	},
	"countersign-ra-signer: approve signers": {
		also: []string{"countersign-ra-requests: get certificatesigningrequests", "countersign-ra-approval: update certificatesigningrequests/approval"},
		do: func(ctx context.Context, c kubernetes.Interface) error {
			return changeRequest(ctx, c, func(r *certificatesv1.CertificateSigningRequest) error {
				return got(c.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{DryRun: dry}))
			})
		},
	},
	"countersign-ra-guard: get configmaps": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{}))
	}},
	"countersign-ra-guard: get validatingadmissionpolicies": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, "countersign-ra-pod-certificates", metav1.GetOptions{}))
	}},
	"countersign-ra-guard: get validatingadmissionpolicybindings": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, "countersign-ra-pod-certificates", metav1.GetOptions{}))
	}},
	"countersign-ra: create leases": {do: func(ctx context.Context, c kubernetes.Interface) error {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}
		return got(c.CoordinationV1().Leases(raNamespace).Create(ctx, l, metav1.CreateOptions{DryRun: dry}))
	}},
	"countersign-ra: get leases": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoordinationV1().Leases(raNamespace).Get(ctx, raAccount, metav1.GetOptions{}))
	}},
	"countersign-ra: update leases": {also: []string{"countersign-ra: get leases"}, do: func(ctx context.Context, c kubernetes.Interface) error {
		l, err := c.CoordinationV1().Leases(raNamespace).Get(ctx, raAccount, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return got(c.CoordinationV1().Leases(raNamespace).Update(ctx, l, metav1.UpdateOptions{DryRun: dry}))
	}},
	"countersign-ra-replicas: get leases": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoordinationV1().Leases(raNamespace).Get(ctx, raShares, metav1.GetOptions{}))
	}},
	"countersign-ra-replicas: update leases": {also: []string{"countersign-ra-replicas: get leases"}, do: func(ctx context.Context, c kubernetes.Interface) error {
		l, err := c.CoordinationV1().Leases(raNamespace).Get(ctx, raShares, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return got(c.CoordinationV1().Leases(raNamespace).Update(ctx, l, metav1.UpdateOptions{DryRun: dry}))
	}},
	"countersign-ra: create configmaps": {do: func(ctx context.Context, c kubernetes.Interface) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}
		return got(c.CoreV1().ConfigMaps(raNamespace).Create(ctx, m, metav1.CreateOptions{DryRun: dry}))
	}},
	"countersign-ra: get configmaps": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().ConfigMaps(raNamespace).Get(ctx, raAccount, metav1.GetOptions{}))
	}},
	"countersign-ra: update configmaps": {do: func(ctx context.Context, c kubernetes.Interface) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: raAccount}}
		return got(c.CoreV1().ConfigMaps(raNamespace).Update(ctx, m, metav1.UpdateOptions{DryRun: dry}))
	}},
	"countersign-ra-replicas: get configmaps": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().ConfigMaps(raNamespace).Get(ctx, raRenewals, metav1.GetOptions{}))
	}},
	"countersign-ra-replicas: update configmaps": {do: func(ctx context.Context, c kubernetes.Interface) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: raRenewals}}
		return got(c.CoreV1().ConfigMaps(raNamespace).Update(ctx, m, metav1.UpdateOptions{DryRun: dry}))
	}},
	"countersign-ra-bundle: get configmaps": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().ConfigMaps(raNamespace).Get(ctx, raPublished, metav1.GetOptions{}))
	}},
	"countersign-ra-bundle: update configmaps": {do: func(ctx context.Context, c kubernetes.Interface) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: raPublished}}
		return got(c.CoreV1().ConfigMaps(raNamespace).Update(ctx, m, metav1.UpdateOptions{DryRun: dry}))
	}},
	"countersign-ra-istio: create tokenreviews": {do: func(ctx context.Context, c kubernetes.Interface) error {
		r := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x", Audiences: []string{"istio-ca"}}}
		return got(c.AuthenticationV1().TokenReviews().Create(ctx, r, metav1.CreateOptions{}))
	}},
	"countersign-ra-istio: list pods": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1,spec.serviceAccountName=web"}))
	}},
	"countersign-ra-remotes: list secrets": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().Secrets(raNamespace).List(ctx, metav1.ListOptions{}))
	}},
	"countersign-ra-remotes: watch secrets": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return watched(c.CoreV1().Secrets(raNamespace).Watch(ctx, metav1.ListOptions{}))
	}},
	"countersign-ra-mesh: list namespaces": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: "a=b"}))
	}},
	"countersign-ra-mesh: watch namespaces": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return watched(c.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{LabelSelector: "a=b"}))
	}},
	"countersign-ra-mesh: list configmaps": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().ConfigMaps("").List(ctx, ofMesh))
	}},
	"countersign-ra-mesh: watch configmaps": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return watched(c.CoreV1().ConfigMaps("").Watch(ctx, ofMesh))
	}},
	"countersign-ra-mesh: patch configmaps": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().ConfigMaps("shop").Patch(ctx, meshroots.Name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{DryRun: dry}))
	}},
	"countersign-ra-mesh: create configmaps": {also: []string{"countersign-ra-mesh: patch configmaps"}, do: func(ctx context.Context, c kubernetes.Interface) error {
		m := applied.ConfigMap(meshroots.Name, "shop").WithData(map[string]string{meshroots.Key: root})
		return got(c.CoreV1().ConfigMaps("shop").Apply(ctx, m, metav1.ApplyOptions{FieldManager: owned.Manager, DryRun: dry}))
	}},
	"countersign-ra-istiod: get secrets": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().Secrets("shop").Get(ctx, istiodtls.Name, metav1.GetOptions{}))
	}},
	"countersign-ra-istiod: patch secrets": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CoreV1().Secrets("shop").Patch(ctx, istiodtls.Name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{DryRun: dry}))
	}},
	"countersign-ra-istiod: create secrets": {also: []string{"countersign-ra-istiod: patch secrets"}, do: func(ctx context.Context, c kubernetes.Interface) error {
		s := applied.Secret(istiodtls.Name, "shop").WithType(corev1.SecretTypeTLS).WithData(map[string][]byte{"tls.crt": nil, "tls.key": nil})
		return got(c.CoreV1().Secrets("shop").Apply(ctx, s, metav1.ApplyOptions{FieldManager: owned.Manager, DryRun: dry}))
	}},
	"countersign-ra-requests: get certificatesigningrequests": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CertificatesV1().CertificateSigningRequests().Get(ctx, "x", metav1.GetOptions{}))
	}},
	"countersign-ra-requests: list certificatesigningrequests": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return got(c.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{}))
	}},
	"countersign-ra-requests: watch certificatesigningrequests": {do: func(ctx context.Context, c kubernetes.Interface) error {
		return watched(c.CertificatesV1().CertificateSigningRequests().Watch(ctx, metav1.ListOptions{}))
	}},
	"countersign-ra-requests: update certificatesigningrequests/status": {do: func(ctx context.Context, c kubernetes.Interface) error {
		r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
		return got(c.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, r, metav1.UpdateOptions{}))
	}},
	"countersign-ra-approval: update certificatesigningrequests/approval": {do: func(ctx context.Context, c kubernetes.Interface) error {
		r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
		return got(c.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, "x", r, metav1.UpdateOptions{}))
	}},
}

// ofMesh chooses the ConfigMaps that the registration authority may see.
var ofMesh = metav1.ListOptions{FieldSelector: "metadata.name=" + meshroots.Name}

// got is nil where the request was allowed, be there an object or not.
func got[T any](_ T, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// root is a certificate of some CA.
var root = func() string {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}()

func trustBundle(roots string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: raBundle}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: raSigner, TrustBundle: roots},
	}
}

// changeRequest changes a request that is there.
func changeRequest(ctx context.Context, c kubernetes.Interface, change func(*certificatesv1.CertificateSigningRequest) error) error {
	r, err := c.CertificatesV1().CertificateSigningRequests().Get(ctx, "there", metav1.GetOptions{})
	if err != nil {
		return err
	}
	return change(r)
}

// raRole is a role of either kind, as it was applied.
type raRole struct {
	name  string
	rules []rbacv1.PolicyRule
	set   func([]rbacv1.PolicyRule)
}

// raBound is a cluster where the base's rights are, with a client that has them alone.
func raBound(t *testing.T) (c *kubetest.Cluster, client *kubernetes.Clientset, roles []raRole) {
	t.Helper()
	c = kubetest.Start(t, kubetest.Options{})
	c.Namespace(raNamespace, "shop")
	text := built(t, withRequests, nil)
	apply(t, c, text)
	rbac := c.Client().RbacV1()
	for _, o := range objects(t, text, "ClusterRole") {
		var role rbacv1.ClusterRole
		must(t, json.Unmarshal(o.text, &role))
		roles = append(roles, raRole{role.Name, role.Rules, func(rules []rbacv1.PolicyRule) {
			now, err := rbac.ClusterRoles().Get(t.Context(), role.Name, metav1.GetOptions{})
			must(t, err)
			now.Rules = rules
			_, err = rbac.ClusterRoles().Update(t.Context(), now, metav1.UpdateOptions{})
			must(t, err)
		}})
	}
	for _, o := range objects(t, text, "Role") {
		var role rbacv1.Role
		must(t, json.Unmarshal(o.text, &role))
		roles = append(roles, raRole{role.Name, role.Rules, func(rules []rbacv1.PolicyRule) {
			now, err := rbac.Roles(raNamespace).Get(t.Context(), role.Name, metav1.GetOptions{})
			must(t, err)
			now.Rules = rules
			_, err = rbac.Roles(raNamespace).Update(t.Context(), now, metav1.UpdateOptions{})
			must(t, err)
		}})
	}
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "there"},
		Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: raSigner, Request: csrPEM(t), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}},
	}
	_, err := c.Client().CertificatesV1().CertificateSigningRequests().Create(t.Context(), request, metav1.CreateOptions{})
	must(t, err)
	for _, name := range []string{raAccount, raShares} {
		_, err = c.Client().CoordinationV1().Leases(raNamespace).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
	}
	client = c.ClientFor(c.Account(raNamespace, raAccount))
	for what, need := range raNeeds {
		soon(t, what, func() error { return need.do(t.Context(), client) })
	}
	return c, client, roles
}

// Each verb that is taken away takes what it is named after, and nothing else.
func TestRealRightsOfTheRAAreAllNeeded(t *testing.T) {
	_, client, roles := raBound(t)
	unproved := maps.Clone(raNeeds)
	for _, role := range roles {
		for i, rule := range role.rules {
			for j, verb := range rule.Verbs {
				gone := role.name + ": " + verb + " " + rule.Resources[0]
				if raNeeds[gone].do == nil {
					t.Errorf("nothing needs the right %s", gone)
					continue
				}
				rules := slices.Clone(role.rules)
				rules[i].Verbs = slices.Delete(slices.Clone(rule.Verbs), j, j+1)
				if len(rules[i].Verbs) == 0 {
					rules = slices.Delete(rules, i, i+1)
				}
				role.set(rules)
				soon(t, "without "+gone, func() error { return refused(raNeeds[gone].do(t.Context(), client)) })
				for what, need := range raNeeds {
					if what == gone || slices.Contains(need.also, gone) {
						continue
					}
					if err := need.do(t.Context(), client); err != nil {
						t.Errorf("%s, without %s: %v", what, gone, err)
					}
				}
				role.set(role.rules)
				soon(t, "with "+gone, func() error { return raNeeds[gone].do(t.Context(), client) })
				delete(unproved, gone)
			}
		}
	}
	for what := range unproved {
		t.Errorf("no verb is for %s", what)
	}
}

// What an attacker with the account's token would try next.
func TestRealRightsOfTheRAEndThere(t *testing.T) {
	c, _, _ := raBound(t)
	for what, asked := range map[string]authorizationv1.ResourceAttributes{
		"secrets elsewhere":           {Verb: "list", Resource: "secrets", Namespace: "shop"},
		"one secret here":             {Verb: "get", Resource: "secrets", Namespace: raNamespace, Name: "x"},
		"config maps elsewhere":       {Verb: "get", Resource: "configmaps", Namespace: "shop", Name: raAccount},
		"other config maps here":      {Verb: "update", Resource: "configmaps", Namespace: raNamespace, Name: "countersign-ra-config"},
		"watches of all pods":         {Verb: "watch", Resource: "pods"},
		"pods of its own":             {Verb: "create", Resource: "pods", Namespace: "shop"},
		"reviews of rights":           {Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
		"a config map of its own":     {Verb: "create", Resource: "configmaps", Namespace: "shop", Name: "other"},
		"no roots of a mesh":          {Verb: "delete", Resource: "configmaps", Namespace: "shop", Name: meshroots.Name},
		"another secret of istiod's":  {Verb: "patch", Resource: "secrets", Namespace: "istio-system", Name: "cacerts"},
		"all secrets of that name":    {Verb: "list", Resource: "secrets", Name: istiodtls.Name},
		"namespaces of its own":       {Verb: "create", Resource: "namespaces"},
		"requests of its own":         {Verb: "create", Group: "certificates.k8s.io", Resource: "podcertificaterequests", Namespace: "shop"},
		"requests of users":           {Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
		"another signer":              {Verb: "sign", Group: "certificates.k8s.io", Resource: "signers", Name: "kubernetes.io/kube-apiserver-client"},
		"approval for another signer": {Verb: "approve", Group: "certificates.k8s.io", Resource: "signers", Name: "kubernetes.io/kube-apiserver-client"},
		"roots of another signer":     {Verb: "attest", Group: "certificates.k8s.io", Resource: "signers", Name: "example.com/other"},
		"another trust bundle":        {Verb: "update", Group: "certificates.k8s.io", Resource: "clustertrustbundles", Name: "example.com:other:x"},
		"no trust bundle":             {Verb: "delete", Group: "certificates.k8s.io", Resource: "clustertrustbundles", Name: raBundle},
		"another lease":               {Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system", Name: raAccount},
		"no admission policy":         {Verb: "delete", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies", Name: "countersign-ra-pod-certificates"},
		"tokens of accounts":          {Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "shop"},
	} {
		asked.Version = "*"
		if c.Allowed(authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + raNamespace + ":" + raAccount, ResourceAttributes: &asked}) {
			t.Errorf("it may have %s", what)
		}
	}
}
