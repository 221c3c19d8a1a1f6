package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
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
  match: {requests: [istio], kinds: [service-account], clusters: [vm]}
  names: {spiffe_id: "spiffe://vm.example.org/ns/{namespace}/sa/{serviceAccount}"}
`

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

// newIssuer returns the key of an issuer, and its keys as it publishes them.
func newIssuer(t *testing.T) (key *ecdsa.PrivateKey, keys string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return key, fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","kid":"1","alg":"ES256","use":"sig","x":%q,"y":%q}]}`, b64(public[1:33]), b64(public[33:]))
}

// signed is a token of the issuer.
func signed(t *testing.T, key *ecdsa.PrivateKey, subject, audience string) string {
	t.Helper()
	claims, err := json.Marshal(map[string]any{"iss": issuerURL, "sub": subject, "aud": audience, "exp": time.Now().Add(time.Hour).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	input := b64([]byte(`{"alg":"ES256","kid":"1","typ":"JWT"}`)) + "." + b64(claims)
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + b64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// Callers of an issuer are of the cluster that the operator wrote down, whose API server is none:
// the home cluster's client CAs are looked at for them. One that is taken out is refused at once.
func TestCallersOfAnIssuerAreServedUntilItIsTakenOut(t *testing.T) {
	t.Parallel()
	key, keys := newIssuer(t)
	other, _ := newIssuer(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "keys.json"), keys)
	r, _, _ := newMesh(t, strings.ReplaceAll(forMesh, "rules:\n", strings.ReplaceAll(forMachines, "KEYS", filepath.Join(dir, "keys.json"))))
	conn := r.dial(t, r.root(t))
	const account = "system:serviceaccount:shop:web"
	machine := as(t, conn, signed(t, key, machineID, "istio-ca"), "")
	machine.gets(nil, machineID)
	for _, cluster := range []string{"", "vm", "Kubernetes", "east"} { // agents send the mesh's
		as(t, conn, signed(t, key, account, "istio-ca"), cluster).gets(nil, "spiffe://vm.example.org/ns/shop/sa/web")
	}
	as(t, conn, signed(t, key, machineID, "vault"), "").refused(nil, codes.Unauthenticated)
	as(t, conn, signed(t, other, machineID, "istio-ca"), "").refused(nil, codes.Unauthenticated)
	as(t, conn, signed(t, key, "spiffe://cluster.local/ns/shop/sa/web", "istio-ca"), "").refused(nil, codes.Unauthenticated)
	as(t, conn, signed(t, key, "system:serviceaccount:istio-system:ztunnel", "istio-ca"), "").refused(impersonate(webID), codes.PermissionDenied)
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
