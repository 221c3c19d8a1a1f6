package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// TestOnlyHealthAndMetricsAreReachableFromOutside asks both addresses for all that the agent
// has elsewhere.
func TestOnlyHealthAndMetricsAreReachableFromOutside(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := proctest.Folder(t)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "envoy_server_live 1\n")
	}))
	defer proxy.Close()
	for name, text := range map[string]string{
		"token": "a-token-of-a-scraper\n",
		"c.yaml": "namespace: a\nservice_account: web\nsocket: {path: ./s}\nproviders: [{name: file, settings: {dir: ./ca, self_signed: true}}]\n" +
			"status: {probes: '127.0.0.1:0', metrics: 'localhost:0', metrics_secret: default, metrics_token_file: ./token, metrics_from: ['" + proxy.URL + "/']}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agent := talk(t, dir, []string{"TMPDIR=" + dir, "XDG_RUNTIME_DIR="}, self, asAgent, "agent", "--dev", "--config", "c.yaml",
		"--provider-dir", programs.Folder(t, "countersign-provider-file"))
	probes := "http://" + agent.hear(`msg="status page" address=(\S+)`)[1]
	metrics := "https://" + agent.hear(`msg="status page" address=(\S+)`)[1]
	awaitPage(t, probes+"/readyz")

	for page, want := range map[string]int{
		probes + "/healthz": 200, probes + "/healthz/ready": 200, probes + "/": 404, probes + "/status": 404, probes + "/metrics": 404,
		metrics + "/metrics": 200, metrics + "/stats/prometheus": 200, metrics + "/": 404, metrics + "/status": 404, metrics + "/readyz": 404,
	} {
		code, body, id := askPage(t, page, "a-token-of-a-scraper")
		if code != want || strings.Contains(body, "PRIVATE KEY") || strings.HasPrefix(page, "https") && id != "spiffe://cluster.local/ns/a/sa/web" {
			t.Errorf("%s answers %d as %q", page, code, id)
		}
		if want == 200 && strings.HasPrefix(page, "https") && !(strings.Contains(body, "countersign_secret_rotations_total{") && strings.HasSuffix(body, "\nenvoy_server_live 1\n")) {
			t.Errorf("%s says:\n%s", page, body)
		}
	}
	if code, _, _ := askPage(t, metrics+"/metrics", "another"); code != http.StatusUnauthorized {
		t.Errorf("with another token, the metrics answer %d", code)
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(metrics, "https://")); err == nil {
		defer conn.Close() // an idle one delays no other client, nor the end of the agent
	}
}

// awaitPage waits until a page answers 200.
func awaitPage(t *testing.T, page string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(20 * time.Millisecond) {
		code, body, _ := askPage(t, page, "")
		if code == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s answers %d, %s", page, code, body)
		}
	}
}

// askPage fetches a page, and returns the SPIFFE ID of its server.
func askPage(t *testing.T, page, token string) (code int, body, id string) {
	t.Helper()
	client := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.TLS != nil && len(resp.TLS.PeerCertificates[0].URIs) > 0 {
		id = resp.TLS.PeerCertificates[0].URIs[0].String()
	}
	return resp.StatusCode, string(text), id
}

// TestMetricsAreForClientsOfTheTrustBundle asks as several clients, before and after the trust
// bundle is another one.
func TestMetricsAreForClientsOfTheTrustBundle(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := proctest.Folder(t)
	const scraper = "spiffe://example.org/prometheus"
	first, second := certtest.Root(t), certtest.Root(t)
	for name, content := range map[string][]byte{
		"roots.pem": pki.EncodeCertificates([]*x509.Certificate{first.Cert}),
		"c.yaml": []byte("namespace: a\nservice_account: web\nsocket: {path: ./s}\nproviders: [{name: file, settings: {dir: ./ca, self_signed: true}}]\n" +
			"files: {secrets: [{name: scrapers, roots: ./roots.pem}]}\n" +
			"status: {metrics: 'localhost:0', metrics_secret: default, metrics_client_roots: scrapers, metrics_client_names: ['" + scraper + "', server]}\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agent := talk(t, dir, []string{"TMPDIR=" + dir, "XDG_RUNTIME_DIR="}, self, asAgent, "agent", "--dev", "--config", "c.yaml",
		"--provider-dir", programs.Folder(t, "countersign-provider-file"))
	page := "https://" + agent.hear(`msg="status page" address=(\S+)`)[1] + "/metrics"

	nameless := certtest.Leaf(t, time.Hour, "spiffe://example.org/other")
	nameless.DNSNames = nil
	old, next := first.Leaf(t, time.Hour, scraper), second.Leaf(t, time.Hour, scraper)
	byName := first.Leaf(t, time.Hour) // for the DNS name "server"
	awaitScrape(t, page, old, true)
	for name, test := range map[string]struct {
		client *certtest.Pair
		want   bool
	}{
		"no certificate": {nil, false}, "one of another CA": {next, false}, "its own": {certtest.SelfSigned(t, certtest.Leaf(t, time.Hour, scraper)), false},
		"another's name": {first.Issue(t, nameless), false}, "the DNS name": {byName, true}, "the SPIFFE ID": {old, true},
	} {
		if got := scrapes(t, page, test.client); (got == nil) != test.want {
			t.Errorf("a client with %s gets %v", name, got)
		}
	}

	renewed := filepath.Join(dir, "renewed")
	if err := os.WriteFile(renewed, pki.EncodeCertificates([]*x509.Certificate{second.Cert}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(renewed, filepath.Join(dir, "roots.pem")); err != nil {
		t.Fatal(err)
	}
	awaitScrape(t, page, next, true)
	awaitScrape(t, page, old, false)
}

// awaitScrape waits until a client gets the page, or no longer does.
func awaitScrape(t *testing.T, page string, client *certtest.Pair, want bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(20 * time.Millisecond) {
		err := scrapes(t, page, client)
		if (err == nil) == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s answers %v", page, err)
		}
	}
}

// scrapes fetches the page with a client certificate, if it is not nil.
func scrapes(t *testing.T, page string, pair *certtest.Pair) error {
	t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true}
	if pair != nil {
		// Whatever CAs the server names, this one is sent.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.TLS(), nil }
	}
	client := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: cfg}}
	resp, err := client.Get(page)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
