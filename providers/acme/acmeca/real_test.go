//go:build e2e

package acmeca

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func TestRealHTTPAtOwnPort(t *testing.T) {
	p := startPebble(t)
	settings := p.settings(t)
	settings.Profile = "default" // Pebble chooses any without
	c := p.open(t, settings)
	chain := certified(t, c, "web.example.org", "www.example.org")
	if life := time.Until(chain.Leaf.NotAfter); life < 80*24*time.Hour {
		t.Errorf("it lives for %s", life)
	}
	if _, err := c.CSRSign(t.Context(), requestFor(t, "blocked.example")); ca.ReasonFor(err) != ca.Denied || !strings.Contains(err.Error(), "rejectedIdentifier") {
		t.Errorf("a blocked name: %v", err)
	}
	if conn, err := net.Dial("tcp", p.http); err == nil {
		_ = conn.Close()
		t.Error("it still listens, although nothing is to be proved")
	}
	info, err := os.Stat(filepath.Join(c.settings.StateDir, keyFile))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the account's key has the mode %s", info.Mode())
	}
	must(t, c.Close())
	again := p.open(t, c.settings)
	before := c.account.current().kid
	certified(t, again, "web.example.org")
	if got := again.account.current().kid; got != before {
		t.Errorf("a restart made another account: %s after %s", got, before)
	}
}

func TestRealHTTPByWebroot(t *testing.T) {
	p := startPebble(t)
	settings := p.settings(t)
	settings.Webroot, settings.Listen = t.TempDir(), ""
	must(t, os.Chmod(settings.Webroot, 0o755))
	listener, err := net.Listen("tcp", p.http)
	must(t, err)
	web := &http.Server{Handler: http.FileServer(http.Dir(settings.Webroot)), ReadHeaderTimeout: patience}
	go func() { _ = web.Serve(listener) }()
	defer web.Close()
	certified(t, p.open(t, settings), "web.example.org")
	left, err := os.ReadDir(filepath.Join(settings.Webroot, wellKnown))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}

func TestRealTLSALPN(t *testing.T) {
	p := startPebble(t)
	settings := p.settings(t)
	settings.Challenge, settings.Listen = TLSALPN01, p.tls
	certified(t, p.open(t, settings), "web.example.org", "www.example.org")
}

func TestRealDNSByCommandProvesWildcards(t *testing.T) {
	p := startPebble(t)
	settings := p.settings(t)
	settings.Challenge, settings.Listen = DNS01, ""
	// It adds records to Pebble's DNS server, and notes what it was called with.
	notes := p.path("notes")
	t.Setenv("SESAME", "secret")
	settings.DNSCommand = []string{must2(os.Executable()), dnsTool, notes, p.dns}
	certified(t, p.open(t, settings), "*.example.org", "web.example.com")
	text, err := os.ReadFile(notes)
	must(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	half := len(lines) / 2
	slices.Sort(lines[:half])
	slices.Sort(lines[half:]) // all answers are cleaned at the same time
	want := []string{
		"present _acme-challenge.example.org.\n", "present _acme-challenge.web.example.com.\n",
		"", "cleanup _acme-challenge.example.org.\n", "cleanup _acme-challenge.web.example.com.\n",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("the command was called with:\n%s", text)
	}
}

// An order that has a name to prove, and no time left for it.
func TestRealOrderThatIsGivenUpLeavesNothingPending(t *testing.T) {
	p := startPebble(t)
	settings := p.settings(t)
	settings.Challenge, settings.Listen = DNS01, ""
	settings.DNSCommand, settings.DNSWait, settings.OrderTimeout = []string{"/bin/true"}, time.Hour, 10*time.Second
	c := p.open(t, settings)
	must2(c.account.signer(t.Context())) // which counts for the time of the first order else
	seen := &authorizations{RoundTripper: c.server.client, urls: map[string]bool{}}
	c.server.client = seen
	if _, err := c.CSRSign(t.Context(), requestFor(t, "web.example.org", "www.example.org")); !strings.Contains(err.Error(), "given up") {
		t.Errorf("got %v", err)
	}
	if len(seen.urls) != 2 {
		t.Errorf("the authorizations are %v", seen.urls)
	}
	for url := range seen.urls {
		got, err := c.server.post(t.Context(), c.account.current(), url, nil)
		must(t, err)
		var now authorization
		must(t, json.Unmarshal(got.body, &now))
		if now.Status != "deactivated" {
			t.Errorf("%s is %s", url, now.Status)
		}
	}
}

// authorizations notes which Pebble was asked for.
type authorizations struct {
	http.RoundTripper
	urls map[string]bool
}

func (a *authorizations) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.Contains(req.URL.Path, "/authZ/") {
		a.urls[req.URL.String()] = true
	}
	return a.RoundTripper.RoundTrip(req)
}

func TestRealAddressIsProvedByHTTPAndALPN(t *testing.T) {
	p := startPebble(t)
	for _, way := range []string{HTTP01, TLSALPN01} {
		settings := p.settings(t)
		settings.Challenge = way
		if way == TLSALPN01 {
			settings.Listen = p.tls
		}
		key, csr := testkit.CSR(t, testkit.Identity(t, "", nil, []string{"127.0.0.1"}))
		reply, err := p.open(t, settings).CSRSign(t.Context(), ca.SignRequest{ID: "1", CSR: csr, IPAddresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
		must(t, err)
		id, err := pki.NewIdentity("", nil, []string{"127.0.0.1"})
		must(t, err)
		testkit.Passes(t, reply, pki.Check{Key: key.Public(), Identity: id, Now: time.Now()})
	}
}

func TestRealProfileAndExternalAccount(t *testing.T) {
	mac := base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte("mac"), 11))
	p := startPebble(t, odd{config: map[string]any{"externalAccountBindingRequired": true, "externalAccountMACKeys": map[string]string{"kid-1": mac}}})
	settings := p.settings(t)
	if found := settings.ValidateOnline(t.Context()); len(found) != 1 || !strings.Contains(found[0].Summary, "eab is not set") {
		t.Errorf("without a binding: %v", found)
	}
	if _, err := p.open(t, settings).CSRSign(t.Context(), requestFor(t, "web.example.org")); ca.ReasonFor(err) != ca.Invalid {
		t.Errorf("without a binding: %v", err)
	}
	wrong := settings
	wrong.EAB = EAB{"kid-1", base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte("cam"), 11))}
	if _, err := p.open(t, wrong).CSRSign(t.Context(), requestFor(t, "web.example.org")); ca.ReasonFor(err) != ca.Denied || strings.Contains(err.Error(), wrong.EAB.MACKey) {
		t.Errorf("with a wrong key: %v", err)
	}
	settings.EAB, settings.Profile = EAB{"kid-1", mac + "="}, "shortlived"
	c := p.open(t, settings)
	if life := time.Until(certified(t, c, "web.example.org").Leaf.NotAfter); life > 6*24*time.Hour {
		t.Errorf("a short-lived certificate lives for %s", life)
	}
	settings.EAB = EAB{} // the account is open
	if found := settings.ValidateOnline(t.Context()); found != nil {
		t.Errorf("online check: %v", found)
	}
	certified(t, p.open(t, settings), "web.example.org")
	settings.Profile = "eternal"
	if found := settings.ValidateOnline(t.Context()); len(found) != 1 || !strings.Contains(found[0].Summary, "the CA has default, shortlived") {
		t.Errorf("with a profile that the CA has not: %v", found)
	}
}

func TestRealFaultsOfServerAreMended(t *testing.T) {
	for name, o := range map[string]odd{
		"half of the nonces are refused":  {env: []string{"PEBBLE_WFE_NONCEREJECT=50"}},
		"authorizations are used again":   {env: []string{"PEBBLE_AUTHZREUSE=100"}},
		"it validates slowly":             {env: []string{"PEBBLE_VA_NOSLEEP=0", "PEBBLE_VA_SLEEPTIME=3"}},
		"the intermediates are many":      {env: []string{"PEBBLE_CHAIN_LENGTH=3"}},
		"it wants everyone to come later": {config: map[string]any{"retryAfter": map[string]int{"authz": 3, "order": 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPebble(t, o)
			c := p.open(t, p.settings(t))
			for range 2 {
				certified(t, c, "web.example.org", "www.example.org")
			}
		})
	}
}

func TestRealChainOfConfiguredRootIsTaken(t *testing.T) {
	p := startPebble(t, odd{env: []string{"PEBBLE_ALTERNATE_ROOTS=2"}})
	var other bytes.Buffer
	must(t, p.get(p.management+"/roots/2", &other))
	must(t, os.WriteFile(p.path("other.pem"), other.Bytes(), 0o600))
	settings := p.settings(t)
	settings.Roots = setting.Certificates(p.path("other.pem"))
	c := p.open(t, settings)
	certified(t, c, "web.example.org") // whose check has these roots alone
	roots, err := c.Roots(t.Context())
	must(t, err)
	if want, err := pki.ParseBundle(other.Bytes()); err != nil || string(roots) != string(want.PEM()) {
		t.Errorf("roots: %s, %v", roots, err)
	}
	settings.Roots = setting.SystemRoots
	c = p.open(t, settings)
	req := requestFor(t, "web.example.org")
	if _, err := c.CSRSign(t.Context(), req); ca.ReasonFor(err) != ca.Invalid || !strings.Contains(err.Error(), "set the CA's roots") {
		t.Errorf("with the system's roots: %v", err)
	}
	if _, err := c.Roots(t.Context()); ca.ReasonFor(err) != ca.Unimplemented {
		t.Errorf("the system's roots: %v", err)
	}
	// The certificate is there, so the right setting needs no other.
	must(t, c.Close())
	settings.Roots = setting.Certificates(p.path("roots.pem"))
	if _, err := p.open(t, settings).CSRSign(t.Context(), req); err != nil {
		t.Errorf("with the right roots: %v", err)
	}
}

func TestRealOrderOutlastsCallAndProcess(t *testing.T) {
	// A CA that looks for the answer while no process is there to give it refuses the order for good.
	p := startPebble(t, odd{env: []string{"PEBBLE_VA_NOSLEEP=0", "PEBBLE_VA_SLEEPTIME=4", "PEBBLE_VA_ALWAYS_VALID=1"}})
	settings := p.settings(t)
	first := p.open(t, settings)
	req, key := testkit.Request(t, "", "web.example.org")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := first.CSRSign(ctx, req)
		ended <- err
	}()
	record := filepath.Join(settings.StateDir, "orders", recordName(req.ID, must2(pki.ParseCSR(req.CSR)).Raw)+".json")
	eventually(t, "the order is kept", func() error { _, err := os.Stat(record); return err })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call: %v", err)
	}
	must(t, first.Close())
	var before, after struct{ Order string }
	must(t, json.Unmarshal(must2(os.ReadFile(record)), &before))
	second := p.open(t, settings)
	var replies []string
	for range 2 {
		reply, err := second.CSRSign(t.Context(), req)
		must(t, err)
		check := testkit.Check(t, req, key)
		check.AcceptLonger = true
		testkit.Passes(t, reply, check)
		replies = append(replies, string(reply.Chain))
	}
	must(t, json.Unmarshal(must2(os.ReadFile(record)), &after))
	if replies[0] != replies[1] || before.Order == "" || before.Order != after.Order {
		t.Errorf("the order was %s, then %s; the same certificate: %t", before.Order, after.Order, replies[0] == replies[1])
	}
}

func TestRealRenewalInfoAndReplacement(t *testing.T) {
	p := startPebble(t)
	c := p.open(t, p.settings(t))
	chain := certified(t, c, "web.example.org")
	leaf := pki.EncodeCertificates([]*x509.Certificate{chain.Leaf})
	info, err := c.RenewalInfo(t.Context(), leaf)
	must(t, err)
	if !info.End.After(info.Start) || info.Start.Before(time.Now()) || info.RetryAfter < time.Minute {
		t.Errorf("advice for a new certificate: %+v", info)
	}
	id, err := certID(chain.Leaf)
	must(t, err)
	if got := c.predecessor(testkit.Identity(t, "", []string{"web.example.org"}, nil)); got != id {
		t.Errorf("the next order replaces %q, want %q", got, id)
	}
	certified(t, c, "web.example.org")
	dir, err := c.server.directory(t.Context())
	must(t, err)
	again := newOrderRequest{Identifiers: []name{{dnsName, "web.example.org"}}, Replaces: id}
	if _, err := c.server.post(t.Context(), c.account.current(), dir.NewOrder, again); kindOf(err) != "alreadyReplaced" {
		t.Errorf("the second certificate did not replace the first: %v", err)
	}
	must(t, p.advise(leaf, `{"suggestedWindow":{"start":"2020-01-01T00:00:00Z","end":"2020-01-02T00:00:00Z"},"explanationURL":"https://ca.example/incident"}`))
	info, err = c.RenewalInfo(t.Context(), leaf)
	if must(t, err); info.End.After(time.Now()) || info.Explanation != "https://ca.example/incident" {
		t.Errorf("advice to renew now: %+v", info)
	}
	// Several orders that replace one certificate: all are fulfilled.
	done := make(chan error)
	for range 3 {
		req := requestFor(t, "web.example.org")
		go func() {
			_, err := c.CSRSign(t.Context(), req)
			done <- err
		}()
	}
	for range 3 {
		must(t, <-done)
	}
	stranger := testkit.Identity(t, "", []string{"web.example.org"}, nil)
	foreign, _ := testkit.Pair(t, catest.NewCA(catest.Options{}), stranger)
	certs, err := pki.ParseCertificates(foreign)
	must(t, err)
	if _, err := c.RenewalInfo(t.Context(), pki.EncodeCertificates(certs[:1])); ca.ReasonFor(err) != ca.Invalid {
		t.Errorf("another CA's certificate: %v", err)
	}
}

func TestRealKeyIsRolledOver(t *testing.T) {
	p := startPebble(t)
	settings := p.settings(t)
	other := p.open(t, settings) // another process with the same account
	certified(t, other, "web.example.org")
	before := must2(os.ReadFile(filepath.Join(settings.StateDir, keyFile)))
	settings.RolloverAfter = time.Nanosecond
	c := p.open(t, settings)
	certified(t, c, "web.example.org")
	after := must2(os.ReadFile(filepath.Join(settings.StateDir, keyFile)))
	if bytes.Equal(before, after) || c.account.current().kid != other.account.current().kid {
		t.Errorf("the key changed: %t; the account %s, before %s", !bytes.Equal(before, after), c.account.current().kid, other.account.current().kid)
	}
	certified(t, other, "web.example.org")
	if _, err := os.Stat(filepath.Join(settings.StateDir, nextFile)); !os.IsNotExist(err) {
		t.Errorf("the next key is left: %v", err)
	}
}
