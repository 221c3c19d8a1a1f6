//go:build e2e && linux

package program

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// realMesh is a configuration for a mesh of two real clusters.
const realMesh = `
cluster: {id: home, kubeconfig: DIR/kube.yaml}
remotes: {folder: DIR/remotes}
dev: true
providers: [{name: file, settings: {dir: DIR/ca, self_signed: true, poll_interval: 100ms}}]
authorities: [{name: file, limits: {rate: 1000}, roots: {wait: 1s, unplanned: 1s, interval: 1s}}]
istio:
  listen: 127.0.0.1:0
  certificate: {dns_names: [countersign-ra.countersign.svc]}
  node_proxies: [istio-system/ztunnel, istio-system/cni, east/istio-system/ztunnel]
  renewals: {identities: ["spiffe://cluster.local/ns/shop/sa/web"], longest: 72h}
rules:
- name: mesh
  match: {requests: [istio], namespaces: [shop, istio-system]}
  names: {spiffe_id: "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}
- name: east
  match: {requests: [istio], namespaces: [shop, istio-system], clusters: [east]}
  names: {spiffe_id: "spiffe://east.local/ns/{namespace}/sa/{serviceAccount}"}
budget: {holder: 1000}
audit: {file: DIR/audit.log}
leader_election: {duration: 5s}
status: {address: 'unix:DIR/page'}
`

// realm is a cluster with a real API server, where the program has the manifests' rights alone.
type realm struct {
	*kubetest.Cluster
	t *testing.T
}

func newRealm(t *testing.T, name string) realm {
	t.Helper()
	r := realm{kubetest.Start(t, kubetest.Options{Name: name}), t}
	user := r.ServiceAccount("countersign", "countersign-ra")
	for _, file := range []string{"rights/pods.yaml", "rights/guard.yaml", "istio/rights/rights.yaml"} {
		r.Bind("", user, rulesIn(t, file)...)
	}
	r.Bind("countersign", user, slices.Concat(rulesIn(t, "home.yaml"), rulesIn(t, "replicas/replicas.yaml"))...)
	for _, account := range []string{"shop/web", "shop/api", "shop/job", "shop/pay", "shop/till", "bank/web", "istio-system/ztunnel", "istio-system/cni", "istio-system/istiod"} {
		namespace, name, _ := strings.Cut(account, "/")
		r.ServiceAccount(namespace, name)
	}
	r.Node("n1")
	r.Node("n2")
	return r
}

// rulesIn are those of the role in a file of the base.
func rulesIn(t *testing.T, file string) []rbacv1.PolicyRule {
	t.Helper()
	for text := range strings.SplitSeq(read(t, programs.File(t, "deploy/kustomize/ra/"+file)), "\n---\n") {
		var role rbacv1.ClusterRole // a Role has the same rules
		if err := yaml.Unmarshal([]byte(text), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" || role.Kind == "Role" {
			return role.Rules
		}
	}
	t.Fatalf("%s has no role", file)
	return nil
}

func (r realm) kubeconfig() string {
	return string(r.Kubeconfig(r.Account("countersign", "countersign-ra")))
}

// pod makes one of a service account on a node.
func (r realm) pod(namespace, account, name, node string) *corev1.Pod {
	r.t.Helper()
	return r.CreatePod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, NodeName: node, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "main", Image: "main"}},
		},
	})
}

// bound returns a token that is bound to a pod, as kubelets get it.
func (r realm) bound(pod *corev1.Pod) string {
	r.t.Helper()
	seconds := int64(time.Hour / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{"istio-ca"}, ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	reply, err := r.Client().CoreV1().ServiceAccounts(pod.Namespace).CreateToken(r.t.Context(), pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return reply.Status.Token
}

func (r realm) remove(pod *corev1.Pod) {
	r.t.Helper()
	if err := r.Client().CoreV1().Pods(pod.Namespace).Delete(r.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		r.t.Fatal(err)
	}
}

func (r realm) finish(pod *corev1.Pod) {
	r.t.Helper()
	pod.Status.Phase = corev1.PodSucceeded
	if _, err := r.Client().CoreV1().Pods(pod.Namespace).UpdateStatus(r.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// serveReal runs the program that is shipped.
func serveReal(t *testing.T, home realm, remotes map[string]realm) *replica {
	t.Helper()
	dir := files(t, nil, realMesh)
	write(t, filepath.Join(dir, "kube.yaml"), home.kubeconfig())
	if err := os.Mkdir(filepath.Join(dir, "remotes"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, remote := range remotes {
		write(t, filepath.Join(dir, "remotes", name+".yaml"), remote.kubeconfig())
	}
	cmd := exec.Command(programs.Path(t, "countersign-ra"), "serve", "--config", filepath.Join(dir, "c.yaml"))
	cmd.Env = append(proctest.Environ(dir), "COUNTERSIGN_PROVIDER_PATH="+programs.Folder(t, "countersign-provider-file"))
	r := launch(t, dir, cmd)
	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
	return r
}

func id(account string) string {
	namespace, name, _ := strings.Cut(account, "/")
	return "spiffe://cluster.local/ns/" + namespace + "/sa/" + name
}

// inEast is an identity of the other cluster.
func inEast(account string) string {
	return strings.Replace(id(account), "cluster.local", "east.local", 1)
}

// row is a call: it gets a certificate for an identity, or ends with a code.
type row struct {
	token, cluster string
	pairs          []string // metadata in place of the token's
	fields         map[string]any
	gets           string
	code           codes.Code
}

func (w row) try(t *testing.T, conn *grpc.ClientConn, name string) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		c := as(t, conn, w.token, w.cluster)
		if w.pairs != nil {
			c.pairs = w.pairs
		}
		if w.code != codes.OK {
			c.refused(w.fields, w.code)
			return
		}
		c.gets(w.fields, w.gets)
	})
}

func TestRealMeshOfTwoClusters(t *testing.T) {
	home, east := newRealm(t, "home"), newRealm(t, "east")
	web, proxy := home.pod("shop", "web", "web-0", "n1"), home.pod("istio-system", "ztunnel", "ztunnel-1", "n1")
	home.pod("shop", "api", "api-0", "n2")
	home.pod("istio-system", "istiod", "istiod-0", "n2")
	job := home.pod("shop", "job", "job-0", "n1")
	home.finish(job)
	bank := home.pod("bank", "web", "web-0", "n1")
	home.pod("shop", "till", "till-0", "n1")
	eastWeb, eastProxy := east.pod("shop", "web", "web-0", "n1"), east.pod("istio-system", "ztunnel", "ztunnel-1", "n1")
	east.pod("shop", "api", "api-0", "n2")
	east.pod("shop", "pay", "pay-0", "n1")
	webToken, proxyToken, eastToken, eastProxyToken := home.bound(web), home.bound(proxy), east.bound(eastWeb), east.bound(eastProxy)
	eastCNI := east.bound(east.pod("istio-system", "cni", "cni-1", "n1"))
	r := serveReal(t, home, map[string]realm{"east": east})
	conn := r.dial(t, r.root(t))
	as(t, conn, webToken, "").gets(nil, webID)

	const stranger, denied, malformed = codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument
	for name, w := range map[string]row{
		"a pod":                                {token: webToken, gets: webID},
		"a pod that says its cluster":          {token: webToken, cluster: "home", gets: webID},
		"a pod that says another cluster":      {token: webToken, cluster: "east", code: stranger},
		"a pod that says an unknown cluster":   {token: webToken, cluster: "west", code: stranger},
		"a pod of another cluster":             {token: eastToken, cluster: "east", gets: eastID},
		"another cluster's without its ID":     {token: eastToken, code: stranger},
		"another cluster's with the home ID":   {token: eastToken, cluster: "home", code: stranger},
		"a service account without a pod":      {token: home.Token("shop", "web", "istio-ca"), gets: webID},
		"another audience":                     {token: home.Token("shop", "web", "vault"), code: stranger},
		"the API server's audience":            {token: home.Token("shop", "web"), code: stranger},
		"no token of anybody":                  {token: "eyJhbGciOiJub25lIn0.e30.", code: stranger},
		"a forged signature":                   {token: webToken[:len(webToken)-4] + "AAAA", code: stranger},
		"a namespace that no rule has":         {token: home.bound(bank), code: denied},
		"a finished pod's token":               {token: home.bound(job), code: stranger},
		"a CertSigner that no rule has":        {token: webToken, fields: map[string]any{"CertSigner": "fast"}, code: denied},
		"a huge Struct":                        {token: webToken, fields: map[string]any{"a": strings.Repeat("x", 20_000)}, code: malformed},
		"a proxy for a pod of its node":        {token: proxyToken, fields: impersonate(webID), gets: webID},
		"a proxy for itself":                   {token: proxyToken, gets: id("istio-system/ztunnel")},
		"a proxy for another node's pod":       {token: proxyToken, fields: impersonate(id("shop/api")), code: denied},
		"a proxy for another node's istiod":    {token: proxyToken, fields: impersonate(id("istio-system/istiod")), code: denied},
		"a proxy for a finished pod":           {token: proxyToken, fields: impersonate(id("shop/job")), code: denied},
		"a proxy for an account without pods":  {token: proxyToken, fields: impersonate(id("shop/pay")), code: denied},
		"a proxy for nobody's account":         {token: proxyToken, fields: impersonate(id("shop/none")), code: denied},
		"a proxy for a namespace without rule": {token: proxyToken, fields: impersonate(id("bank/web")), code: denied},
		"a proxy for another trust domain":     {token: proxyToken, fields: impersonate(eastID), code: denied},
		"a proxy for no account":               {token: proxyToken, fields: impersonate("spiffe://cluster.local/ns/shop/sa/"), code: malformed},
		"a proxy with an empty identity":       {token: proxyToken, fields: impersonate(""), gets: id("istio-system/ztunnel")},
		"a proxy without a pod":                {token: home.Token("istio-system", "ztunnel", "istio-ca"), fields: impersonate(webID), code: denied},
		"a pod for itself":                     {token: webToken, fields: impersonate(webID), code: denied},
		"a pod for another":                    {token: webToken, fields: impersonate(id("shop/api")), code: denied},

		// The remote's own API server answers for the remote's proxies, and for nobody else.
		"a remote proxy for a pod of its node":              {token: eastProxyToken, cluster: "east", fields: impersonate(eastID), gets: eastID},
		"a remote proxy for a home pod on a node like its":  {token: eastProxyToken, cluster: "east", fields: impersonate(inEast("shop/till")), code: denied},
		"a remote proxy for that by its name at home":       {token: eastProxyToken, cluster: "east", fields: impersonate(id("shop/till")), code: denied},
		"a remote proxy for another node's pod":             {token: eastProxyToken, cluster: "east", fields: impersonate(inEast("shop/api")), code: denied},
		"a remote proxy for its pod by its name at home":    {token: eastProxyToken, cluster: "east", fields: impersonate(webID), code: denied},
		"a home proxy for a remote pod on a node like its":  {token: proxyToken, fields: impersonate(id("shop/pay")), code: denied},
		"a home proxy for that by its name there":           {token: proxyToken, fields: impersonate(inEast("shop/pay")), code: denied},
		"a remote proxy that says it is of home":            {token: eastProxyToken, cluster: "home", fields: impersonate(webID), code: stranger},
		"a remote proxy that does not say its cluster":      {token: eastProxyToken, fields: impersonate(eastID), code: stranger},
		"a remote proxy of an account that is home's alone": {token: eastCNI, cluster: "east", fields: impersonate(eastID), code: denied},
	} {
		w.try(t, conn, name)
	}
	attack := raid{t, home, east, r, conn, webToken, proxyToken, eastToken}
	for _, rows := range []map[string]row{attack.tokens(), attack.wishes()} {
		for name, w := range rows {
			w.try(t, conn, name)
		}
	}
	attack.badCSRs()
	attack.othersCSRs()
	attack.certificates()
	attack.crowd()

	// Reviews are remembered, and pods come and go.
	home.remove(web)
	row{token: webToken, code: stranger}.try(t, conn, "a deleted pod")
	row{token: proxyToken, fields: impersonate(webID), code: denied}.try(t, conn, "a proxy for a deleted pod")
	web = home.pod("shop", "web", "web-0", "n2")
	row{token: webToken, code: stranger}.try(t, conn, "the token of a pod that was there before one of the same name")
	row{token: home.bound(web), gets: webID}.try(t, conn, "that pod")
	row{token: proxyToken, fields: impersonate(webID), code: denied}.try(t, conn, "a proxy for a pod that is elsewhere now")
	home.remove(proxy)
	proxy = home.pod("istio-system", "ztunnel", "ztunnel-1", "n2")
	row{token: proxyToken, fields: impersonate(webID), code: stranger}.try(t, conn, "a proxy that is gone")
	row{token: home.bound(proxy), fields: impersonate(webID), gets: webID}.try(t, conn, "a proxy that came with it")

	// An API server that is away is no no.
	east.Stop()
	row{token: eastToken, cluster: "east", code: codes.Unavailable}.try(t, conn, "a cluster that is away")
	row{token: home.bound(web), gets: webID}.try(t, conn, "the other cluster meanwhile")
	east.Resume()
	as(t, conn, eastToken, "east").gets(nil, eastID)
	if err := os.Remove(filepath.Join(r.dir, "remotes", "east.yaml")); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the cluster is gone", func() bool {
		_, err := as(t, conn, eastToken, "east").ask(nil)
		return grpcstatus.Code(err) == stranger
	})
	audit := read(t, filepath.Join(r.dir, "audit.log"))
	for _, token := range []string{webToken, proxyToken, eastToken} {
		if strings.Contains(audit+r.Log.String(), token) || strings.Contains(audit+r.Log.String(), strings.Split(token, ".")[2]) {
			t.Error("a token was written")
		}
	}
}

// agentOf runs this repository's agent as a sidecar has it.
func (r *replica) agentOf(t *testing.T, token, root string) (certs string) {
	t.Helper()
	s := &sidecar{name: "web"}
	s.startAgent(t, token, caOf{r.report(t).Istio.Address, root}, "web")
	return s.certs
}

// pairIn returns the leaf and the roots that an agent wrote, nil while there is no whole pair.
func pairIn(certs string) (leaf *x509.Certificate, roots []*x509.Certificate) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(certs, "cert-chain.pem"), filepath.Join(certs, "key.pem"))
	if err != nil {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(certs, "root-cert.pem"))
	if err != nil {
		return nil, nil
	}
	roots, _ = pki.ParseCertificates(text)
	return pair.Leaf, roots
}

// The agent renews, keeps its identity over a change of the CA's root, and has both roots meanwhile.
func TestRealAgentRenewsAtTheDoorOverAChangeOfTheRoot(t *testing.T) {
	home := newRealm(t, "home")
	r := serveReal(t, home, nil)
	root := filepath.Join(r.dir, "root.pem")
	write(t, root, string(r.root(t)))
	certs := r.agentOf(t, home.bound(home.pod("shop", "web", "web-0", "n1")), root)
	serials := map[string]bool{}
	renewed := func(times int) func() bool {
		return func() bool {
			leaf, _ := pairIn(certs)
			if leaf != nil {
				serials[leaf.SerialNumber.String()] = true
			}
			return len(serials) >= times
		}
	}
	r.until(t, "the agent has renewed twice", renewed(3))
	leaf, roots := pairIn(certs)
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != webID || len(roots) != 1 {
		t.Errorf("it has %v, and %d roots", leaf.URIs, len(roots))
	}

	old := roots[0]
	changeCA(t, filepath.Join(r.dir, "ca"))
	r.until(t, "the agent has a leaf below the new root, and both roots", func() bool {
		leaf, roots := pairIn(certs)
		return leaf != nil && len(roots) == 2 && leaf.CheckSignatureFrom(old) != nil && slices.ContainsFunc(roots, func(c *x509.Certificate) bool { return leaf.CheckSignatureFrom(c) == nil })
	})
	if leaf, _ := pairIn(certs); leaf != nil && leaf.URIs[0].String() != webID {
		t.Errorf("it has %v", leaf.URIs)
	}
	if log := read(t, filepath.Join(r.dir, "audit.log")); !strings.Contains(log, `"rule":"mesh"`) || strings.Contains(log, "PRIVATE KEY") {
		t.Error(log)
	}
}

// changeCA exchanges the CA in a folder for one with another root.
func changeCA(t *testing.T, dir string) {
	t.Helper()
	next := certtest.Root(t)
	key, err := pki.EncodeKey(next.Key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pki.EncodeCertificates([]*x509.Certificate{next.Cert})
	for name, content := range map[string][]byte{"ca-key.pem": key, "ca-cert.pem": cert, "root-cert.pem": cert} {
		temporary := filepath.Join(dir, name+".new")
		if err := os.WriteFile(temporary, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}
