//go:build e2e && linux

package ingress_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"text/template"
)

// envoy is an ingress gateway: one mTLS listener, whose secrets come over SDS.
type envoy struct {
	*process
	admin string
}

func startEnvoy(t *testing.T, socket string) *envoy {
	t.Helper()
	path, dir := os.Getenv("COUNTERSIGN_ENVOY"), shortFolder(t)
	if path == "" {
		t.Fatal("COUNTERSIGN_ENVOY does not name Envoy's binary: `make e2e` installs it")
	}
	e := &envoy{admin: filepath.Join(dir, "admin")}
	config := filepath.Join(dir, "envoy.yaml")
	file, err := os.Create(config)
	must(t, err)
	defer file.Close()
	parsed, err := template.New("bootstrap.yaml").Option("missingkey=error").ParseFiles("../../../e2e/envoy/bootstrap.yaml")
	must(t, err)
	must(t, parsed.Execute(file, map[string]string{
		"Admin": e.admin, "Socket": socket, "APIType": "DELTA_GRPC", "Certificate": "kubernetes://web", "Roots": "kubernetes://web-cacert",
		"TrustDomain": "customers.example", "Port": "0",
	}))
	e.process = startProcess(t, path, "-c", config, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warn")
	return e
}

// address waits until the listener is open, and returns where.
func (e *envoy) address(t *testing.T) (address string) {
	t.Helper()
	poll(t, "Envoy's listener", func() bool {
		if e.ended() {
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
	conn, err := tls.Dial("tcp", address, customer)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// With TLS 1.3 only an answer says that the client's certificate was taken.
	if _, err := fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"); err != nil {
		return nil, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", answer.Status)
	}
	return conn.ConnectionState().PeerCertificates[0], nil
}
