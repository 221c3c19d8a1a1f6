//go:build e2e && linux

package ingress_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"text/template"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// envoy is one with a single listener.
type envoy struct {
	*proctest.Process
	admin string
}

// startEnvoy runs an ingress gateway: its listener demands mTLS, and the secrets come over
// SDS from an agent's socket.
func startEnvoy(t *testing.T, socket string) *envoy {
	t.Helper()
	return runEnvoy(t, "bootstrap.yaml", map[string]string{
		"Socket": socket, "APIType": "DELTA_GRPC", "Certificate": "kubernetes://web", "Roots": "kubernetes://web-cacert",
		"TrustDomain": "customers.example", "Port": "0",
	})
}

// runEnvoy runs one by a bootstrap of the folder test/e2e/envoy.
func runEnvoy(t *testing.T, bootstrap string, fields map[string]string) *envoy {
	t.Helper()
	path, dir := programs.Foreign(t, "COUNTERSIGN_ENVOY"), proctest.Folder(t)
	if path == "" {
		t.Fatal("COUNTERSIGN_ENVOY does not name Envoy's binary: `make check NAME=step` installs it")
	}
	e := &envoy{admin: filepath.Join(dir, "admin")}
	fields["Admin"] = e.admin
	config := filepath.Join(dir, "envoy.yaml")
	file, err := os.Create(config)
	must(t, err)
	defer file.Close()
	parsed, err := template.New(bootstrap).Option("missingkey=error").ParseFiles(filepath.Join(programs.File(t, "test/e2e/envoy"), bootstrap))
	must(t, err)
	must(t, parsed.Execute(file, fields))
	e.Process = startProcess(t, path, "-c", config, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warn")
	return e
}

// address waits until the listener is open, and returns where.
func (e *envoy) address(t *testing.T) (address string) {
	t.Helper()
	poll(t, "Envoy's listener", func() bool {
		if e.Ended() != nil {
			t.Fatal("Envoy ended")
		}
		address = e.listener()
		return address != "" && page(e.admin, "/ready") == "LIVE\n"
	})
	return address
}

// listener returns the listener's address, "" where it is not open.
func (e *envoy) listener() string {
	var at struct {
		Listeners []struct {
			Local struct {
				Socket struct {
					Address string
					Port    int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if json.Unmarshal([]byte(page(e.admin, "/listeners?format=json")), &at) != nil || len(at.Listeners) == 0 {
		return ""
	}
	socket := at.Listeners[0].Local.Socket
	return fmt.Sprintf("%s:%d", socket.Address, socket.Port)
}

// awaitShown makes requests until the gateway shows the site's certificate; each must go
// well.
func awaitShown(t *testing.T, customer *tls.Config, address string, want site) {
	t.Helper()
	poll(t, "the gateway to show the certificate", func() bool {
		cert, err := shown(customer, address)
		must(t, err)
		return cert.Equal(want.shown)
	})
}

// shown makes a request, and returns the certificate that was shown where it went well.
func shown(customer *tls.Config, address string) (*x509.Certificate, error) {
	cert, _, err := visit(customer, address)
	return cert, err
}

// visit makes a request on a connection of its own, and returns the certificate that was
// shown and the answer's body.
func visit(customer *tls.Config, address string) (*x509.Certificate, string, error) {
	conn, err := tls.Dial("tcp", address, customer)
	if err != nil {
		return nil, "", err
	}
	defer conn.Close()
	// With TLS 1.3 only an answer says that the client's certificate was taken.
	if _, err := fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"); err != nil {
		return nil, "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %s: %s", answer.Status, body)
	}
	return conn.ConnectionState().PeerCertificates[0], string(body), err
}
