package program

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/countersign-dev/countersign/internal/test/oidctest"
)

const (
	issuerURL = "https://issuer.test"
	machineID = "spiffe://vm.example.org/host/db-1"
)

// forMachines adds an issuer, whose keys are in KEYS, and rules for its callers.
const forMachines = `  issuers: [{issuer: "https://issuer.test", cluster: vm, trust_domain: vm.example.org, jwks_file: KEYS}]
rules:
- name: machines
  match: {requests: [istio], kinds: [user], clusters: [vm], users: ["spiffe://vm.example.org/host/*"]}
  names: {spiffe_id: "spiffe://vm.example.org/host/db-1"}
- name: accounts
  match: {requests: [istio], kinds: [service_account], clusters: [vm]}
  names: {spiffe_id: "spiffe://vm.example.org/ns/{namespace}/sa/{serviceAccount}"}
`

// signed is a token of the issuer.
func signed(t *testing.T, i *oidctest.Issuer, subject, audience string) string {
	t.Helper()
	return i.Token(t, subject, audience, time.Hour)
}

// Callers of an issuer are of the cluster that the operator wrote down, whose API server is none:
// the home cluster's client CAs are looked at for them. One that is taken out is refused at once.
func TestCallersOfAnIssuerAreServedUntilItIsTakenOut(t *testing.T) {
	t.Parallel()
	issuer, other := oidctest.New(t, issuerURL), oidctest.New(t, issuerURL)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "keys.json"), string(issuer.JWKS()))
	r, _, _ := newMesh(t, strings.ReplaceAll(forMesh, "rules:\n", strings.ReplaceAll(forMachines, "KEYS", filepath.Join(dir, "keys.json"))))
	conn := r.dial(t, r.root(t))
	const account = "system:serviceaccount:shop:web"
	machine := as(t, conn, signed(t, issuer, machineID, "istio-ca"), "")
	machine.gets(nil, machineID)
	for _, cluster := range []string{"", "vm", "Kubernetes", "east"} { // agents send the mesh's
		as(t, conn, signed(t, issuer, account, "istio-ca"), cluster).gets(nil, "spiffe://vm.example.org/ns/shop/sa/web")
	}
	as(t, conn, signed(t, issuer, machineID, "vault"), "").refused(nil, codes.Unauthenticated)
	as(t, conn, signed(t, other, machineID, "istio-ca"), "").refused(nil, codes.Unauthenticated)
	as(t, conn, signed(t, issuer, "spiffe://cluster.local/ns/shop/sa/web", "istio-ca"), "").refused(nil, codes.Unauthenticated)
	as(t, conn, signed(t, issuer, "system:serviceaccount:istio-system:ztunnel", "istio-ca"), "").refused(impersonate(webID), codes.PermissionDenied)
	as(t, conn, "web-token", "").gets(nil, webID)

	path := filepath.Join(r.dir, "c.yaml")
	before, after, _ := strings.Cut(read(t, path), "  issuers:")
	_, after, _ = strings.Cut(after, "\n")
	write(t, path, before+after)
	r.Signal(syscall.SIGHUP)
	r.until(t, "the settings are taken over", func() bool { return strings.Contains(r.Log.String(), "configuration applied") })
	machine.refused(nil, codes.Unauthenticated)
	as(t, conn, "web-token", "").gets(nil, webID)
}
