//go:build e2e

package vaultca

import (
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func TestRealVaultSignsByRoleAndVerbatim(t *testing.T) {
	r := startVault(t)
	settings := r.approle(t, `"token_ttl":"1h"`)
	c := r.open(t, settings)
	r.signs(t, c, "")
	r.signs(t, c, "", "web.example.org")
	if _, err := c.CSRSign(t.Context(), other(t)); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "use_csr_sans=false") {
		t.Errorf("other names than the CSR's, which count by default: %v", err)
	}
	// A role that takes no name from the CSR takes those of the call.
	r.write(t, "pki/roles/web", strings.Replace(roleOfREADME(t), "{", `{"use_csr_sans":false,"use_csr_common_name":false,`, 1))
	r.signs(t, c, "", "web.example.org")
	cert, err := c.CSRSign(t.Context(), other(t))
	must(t, err)
	if got := namesIn(t, cert); strings.Contains(got, "admin") || !strings.Contains(got, web+"2") || !strings.Contains(got, "www.example.org") {
		t.Errorf("it has %s", got)
	}
	policy := strings.ReplaceAll(readme(t, "```hcl\n", "```"), "sign/web", "sign-verbatim*")
	r.write(t, "sys/policies/acl/agent", asJSON(map[string]any{"policy": policy}))
	for _, role := range []string{"", "web"} {
		settings.Verbatim, settings.Role = true, role
		r.signs(t, r.open(t, settings), "", "elsewhere.example.net")
	}
}

func TestRealVaultDeniesNamesOutsideRoleAndPolicy(t *testing.T) {
	r := startVault(t)
	settings := r.approle(t, `"token_ttl":"1h"`)
	c := r.open(t, settings)
	req, _ := testkit.Request(t, web, "bank.example.com")
	if _, err := c.CSRSign(t.Context(), req); !errors.Is(err, ca.ErrDenied) || !strings.Contains(err.Error(), "bank.example.com not allowed by this role") {
		t.Errorf("a name: %v", err)
	}
	r.write(t, "pki/roles/web", `{"allow_any_name":true,"require_cn":false,"key_type":"ec","allowed_uri_sans":"spiffe://another.org/*"}`)
	if err := sign(t, c, ""); !errors.Is(err, ca.ErrDenied) || !strings.Contains(err.Error(), "not valid for this role") {
		t.Errorf("a SPIFFE ID: %v", err)
	}
	r.write(t, "pki/roles/web", `{"allow_any_name":true,"key_type":"ec","allowed_uri_sans":"*"}`)
	if err := sign(t, c, ""); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "require_cn") {
		t.Errorf("without a common name: %v", err)
	}
	settings.Role = "another"
	if err := sign(t, r.open(t, settings), ""); !errors.Is(err, ca.ErrDenied) || strings.Contains(err.Error(), "hvs.") {
		t.Errorf("another role than the policy's: %v", err)
	}
	settings.Role, settings.Mount = "web", "nowhere"
	if err := sign(t, r.open(t, settings), ""); err == nil || ca.ActionFor(err) != ca.EndAttempt {
		t.Errorf("no such mount: %v", err)
	}
	settings = r.settings
	if err := sign(t, r.open(t, settings), r.root); !errors.Is(err, ca.ErrInvalid) {
		t.Errorf("root, without a common name: %v", err)
	}
	settings.Role = "nobody"
	if err := sign(t, r.open(t, settings), r.root); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "unknown role") {
		t.Errorf("no such role: %v", err)
	}
	if err := sign(t, r.open(t, settings), "hvs.CAESIJ-of-nobody-at-all"); !errors.Is(err, ca.ErrUnauthenticated) {
		t.Errorf("no such token: %v", err)
	}
}

func TestRealVaultSessionsAreRenewedReplacedAndRevoked(t *testing.T) {
	r := startVault(t)
	settings := r.approle(t, `"token_ttl":"60s","token_max_ttl":"90s"`)
	var log testkit.Log
	settings.Log = log.Logger()
	c := r.open(t, settings)
	ahead := time.Duration(0)
	c.now = func() time.Time { return time.Now().Add(ahead) }
	held := func() session {
		t.Helper()
		must(t, sign(t, c, ""))
		s, ok := c.sessions.get(keyOf(""), c.now())
		if !ok || !s.ours || !s.renewable {
			t.Fatalf("no session is held: %v", ok)
		}
		return s
	}
	first := held()
	ahead = 41 * time.Second // by our clock it is time to renew, by the server's it is not over
	second := held()
	if second.token != first.token || !second.longerThan(first) {
		t.Error("it was not renewed")
	}
	ahead = 140 * time.Second
	if third := held(); third.token == first.token {
		t.Error("one that is over by our clock is used")
	}
	ahead = 0
	r.write(t, "auth/token/revoke", fmt.Sprintf(`{"token":%q}`, held().token.Reveal()))
	last := held() // the server forgot the one before
	must(t, c.Close())
	if err := sign(t, r.open(t, r.settings), last.token); !errors.Is(err, ca.ErrUnauthenticated) {
		t.Errorf("a session lasts after its end: %v", err)
	}
	r.write(t, "auth/approle/role/agent", `{"token_policies":"agent","secret_id_num_uses":1}`)
	r.newSecret(t)
	must(t, sign(t, c, ""))
	must(t, c.Close())
	if err := sign(t, c, ""); !errors.Is(err, ca.ErrUnauthenticated) || !strings.Contains(err.Error(), "login by approle") {
		t.Errorf("a secret id that is used up: %v", err)
	}
	r.newSecret(t) // the file is read for each login
	must(t, sign(t, c, ""))
	if said := log.Take(); strings.Contains(said, "hvs.") {
		t.Errorf("logged %s", said)
	}
}

func TestRealVaultRenewsTokenFile(t *testing.T) {
	r := startVault(t)
	token, _ := r.write(t, "auth/token/create", `{"policies":["agent"],"ttl":"60s","renewable":true}`)["client_token"].(string)
	settings := r.settings
	settings.Login.TokenFile = setting.File(filepath.Join(r.folder, "token"))
	must(t, os.WriteFile(string(settings.Login.TokenFile), []byte(token), 0o600))
	c := r.open(t, settings)
	must(t, sign(t, c, ""))
	before, _ := c.sessions.get(keyOf(ca.Token(token)), time.Now())
	c.now = func() time.Time { return time.Now().Add(45 * time.Second) }
	_, err := c.Roots(t.Context())
	must(t, err)
	after, ok := c.sessions.get(keyOf(ca.Token(token)), time.Now())
	if !ok || before.ends.IsZero() || !after.longerThan(before) || after.token != before.token || after.ours {
		t.Errorf("it ends at %s, after %s", after.ends, before.ends)
	}
}

func TestRealVaultAcceptsClientCertificate(t *testing.T) {
	r := startVault(t)
	authority := catest.NewCA(catest.Options{})
	settings := r.settings
	settings.ClientCertFile, settings.ClientKeyFile = r.pair(t, authority, "agent")
	settings.Login = Login{Method: Cert, Role: "agent"}
	r.write(t, "sys/auth/cert", `{"type":"cert"}`)
	r.write(t, "auth/cert/certs/agent", asJSON(map[string]any{"certificate": string(authority.Bundle().PEM()), "token_policies": "agent", "token_ttl": "60s"}))
	c := r.open(t, settings)
	r.signs(t, c, "")
	c.now = func() time.Time { return time.Now().Add(45 * time.Second) }
	r.signs(t, c, "")
	settings.ClientCertFile, settings.ClientKeyFile = r.pair(t, catest.NewCA(catest.Options{}), "stranger")
	if err := sign(t, r.open(t, settings), ""); !errors.Is(err, ca.ErrUnauthenticated) || !strings.Contains(err.Error(), "login by cert") {
		t.Errorf("a stranger's: %v", err)
	}
}

func TestRealVaultAcceptsServiceAccount(t *testing.T) {
	r := startVault(t)
	good, stranger := serviceAccount(t), serviceAccount(t)
	server := reviewer(t, good.Reveal())
	r.write(t, "sys/auth/clusters/one", `{"type":"kubernetes"}`)
	r.write(t, "auth/clusters/one/config", asJSON(map[string]any{
		"kubernetes_host": server.URL, "disable_local_ca_jwt": true,
		"kubernetes_ca_cert": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
	}))
	r.write(t, "auth/clusters/one/role/agent", `{"bound_service_account_names":"agent","bound_service_account_namespaces":"default","token_policies":"agent","token_ttl":"1h"}`)
	settings := r.settings
	settings.Login = Login{Method: Kubernetes, Mount: "clusters/one", Role: "agent"}
	c := r.open(t, settings)
	r.signs(t, c, good)
	if err := sign(t, c, stranger); !errors.Is(err, ca.ErrUnauthenticated) || strings.Contains(err.Error(), stranger.Reveal()) {
		t.Errorf("a stranger's: %v", err)
	}
	settings.Login.Role = "another"
	if err := sign(t, r.open(t, settings), good); !errors.Is(err, ca.ErrUnauthenticated) || !strings.Contains(err.Error(), "another") {
		t.Errorf("another role: %v", err)
	}
}

func TestRealVaultSecondIssuerIsARootAtOnce(t *testing.T) {
	r := startVault(t)
	c := r.open(t, r.settings)
	roots := func(want int) {
		t.Helper()
		text, err := c.Roots(t.Context())
		must(t, err)
		if got := len(certificates(text)); got != want {
			t.Errorf("%d roots instead of %d", got, want)
		}
	}
	roots(1)
	r.write(t, "pki/root/rotate/internal", `{"common_name":"Second","key_type":"ec","issuer_name":"second","ttl":"87600h"}`)
	roots(2)
	r.signs(t, c, r.root)
	r.write(t, "pki/root/replace", `{"default":"second"}`)
	r.signs(t, c, r.root)
	roots(2)
}

// The list of a real mount is one that the agent takes, and has the serial that was revoked.
func TestRealVaultListsItsRevokedCertificates(t *testing.T) {
	r := startVault(t)
	c := r.open(t, r.settings)
	r.write(t, "pki/config/crl", `{"expiry":"72h"}`)
	issued := r.write(t, "pki/issue/web", `{"common_name":"web.example.org","ttl":"1h"}`)
	serial, _ := issued["serial_number"].(string)
	r.write(t, "pki/revoke", asJSON(map[string]any{"serial_number": serial}))
	text, err := c.Revocations(t.Context())
	must(t, err)
	lists, _, err := pki.ParseCRLs(text)
	must(t, err)
	roots, err := c.Roots(t.Context())
	must(t, err)
	if len(lists) != 1 || !pki.SignedCRL(lists[0], certificates(roots)[0]) || !pki.CRLCurrent(lists[0], time.Now()) {
		t.Fatalf("%d lists, or not by this CA, or not current", len(lists))
	}
	revoked := lists[0].RevokedCertificateEntries
	if len(revoked) != 1 || revoked[0].SerialNumber.Text(16) != strings.TrimLeft(strings.ReplaceAll(serial, ":", ""), "0") {
		t.Errorf("revoked are %v, want %s", revoked, serial)
	}
	r.write(t, "pki/root/rotate/internal", `{"common_name":"Second","key_type":"ec","issuer_name":"second","ttl":"87600h"}`)
	text, err = c.Revocations(t.Context())
	must(t, err)
	if lists, _, err := pki.ParseCRLs(text); err != nil || len(lists) != 2 {
		t.Errorf("after a rotation: %d lists, %v", len(lists), err)
	}
}

func TestRealVaultIntermediateTakesRootFromMountOrFile(t *testing.T) {
	r := startVault(t)
	r.write(t, "sys/mounts/int", `{"type":"pki"}`)
	csr, _ := r.write(t, "int/intermediate/generate/internal", `{"common_name":"Intermediate","key_type":"ec"}`)["csr"].(string)
	signed := r.write(t, "pki/root/sign-intermediate", asJSON(map[string]any{"csr": csr, "ttl": "700h"}))
	r.write(t, "int/intermediate/set-signed", asJSON(map[string]any{"certificate": signed["certificate"]}))
	r.write(t, "int/roles/web", roleOfREADME(t))
	settings := r.settings
	settings.Mount = "int"
	c := r.open(t, settings)
	if _, err := c.Roots(t.Context()); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "the mount int has no self-signed issuer") {
		t.Errorf("%v", err)
	}
	root, _ := signed["issuing_ca"].(string)
	settings.BundleFile = setting.Certificates(filepath.Join(r.folder, "bundle.pem"))
	must(t, os.WriteFile(string(settings.BundleFile), []byte(root), 0o600))
	r.signs(t, r.open(t, settings), r.root)
	r.write(t, "int/issuers/import/cert", asJSON(map[string]any{"pem_bundle": root}))
	r.signs(t, c, r.root)
}

func TestRealVaultSealedIsRetried(t *testing.T) {
	r := startVault(t)
	r.write(t, "sys/seal", `{}`)
	c := r.open(t, r.settings)
	if err := sign(t, c, r.root); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("%v", err)
	}
	if _, err := c.Roots(t.Context()); !errors.Is(err, ca.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
