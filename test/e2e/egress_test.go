package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// upstream starts a server with a certificate for a name. It answers what it was asked for.
func upstream(t *testing.T, root *certtest.Pair, name string) (port string) {
	t.Helper()
	cert := root.Issue(t, &x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s of %s", r.Host, r.URL.Path, r.TLS.ServerName)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that Envoy ends
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*cert.TLS()}}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	mustDo(t, err)
	return port
}

// startEgressEnvoy starts the Envoy of the example, which trusts the servers below a root.
func startEgressEnvoy(t *testing.T, socket string, root *certtest.Pair) (address string) {
	t.Helper()
	example, err := os.ReadFile(programs.File(t, "examples/on-demand/egress.yaml"))
	mustDo(t, err)
	roots, _ := root.Files(t)
	bootstrap := string(example)
	for written, here := range map[string]string{"port_value: 8443": "port_value: 0", "path: ./socket": "path: " + socket, "/etc/ssl/certs/ca-certificates.crt": roots} {
		if strings.Count(bootstrap, written) != 1 {
			t.Fatalf("the example has %q %d times", written, strings.Count(bootstrap, written))
		}
		bootstrap = strings.Replace(bootstrap, written, here, 1)
	}
	e := runEnvoy(t, bootstrap+"\nadmin: {address: {pipe: {path: \"{{.Admin}}\"}}}\n", map[string]string{})
	return e.address(t)
}

// egressClient trusts the agent's CA alone, and reaches the proxy in place of each server.
func egressClient(t *testing.T, a *agent, proxy string) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	poll(t, "the provider to have made its CA", func() bool {
		content, _ := os.ReadFile(filepath.Join(a.ca, "root-cert.pem"))
		return roots.AppendCertsFromPEM(content)
	})
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, proxy)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// The documented interception: a client's TLS ends at Envoy with a certificate of the private CA, and
// Envoy verifies the server.
func TestEgressProxyVerifiesServersForItsClients(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	a := startAgent(t, agentConfig{selfSigned: true, secrets: []map[string]any{
		{"name": "egress", "match": "**", "ttl": "24h", "on_demand": map[string]any{"names": 20000, "idle": "1d"}},
	}})
	trusted := certtest.Root(t)
	proxy := startEgressEnvoy(t, a.socket, trusted)
	client := egressClient(t, a, proxy)
	get := func(port string) (status int, body string) {
		t.Helper()
		response, err := client.Get("https://localhost:" + port + "/page")
		mustDo(t, err)
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		mustDo(t, err)
		return response.StatusCode, string(content)
	}
	port := upstream(t, trusted, "localhost")
	if status, body := get(port); status != http.StatusOK || body != "localhost:"+port+" /page of localhost" {
		t.Errorf("the server's answer is %d, %q", status, body)
	}
	for title, port := range map[string]string{
		"another CA":   upstream(t, certtest.Root(t), "localhost"),
		"another name": upstream(t, trusted, "other.example.org"),
	} {
		if status, body := get(port); status != http.StatusServiceUnavailable || !strings.Contains(body, "connection failure") {
			t.Errorf("a server with a certificate of %s: %d, %q; want Envoy to refuse it", title, status, body)
		}
	}
	if r := a.rule(t, "egress"); r.Orders != 1 {
		t.Errorf("%d certificates were ordered for one name", r.Orders)
	}
	mustBeRefused(t, proxy, "") // no server name
}
