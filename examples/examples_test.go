// Package examples_test builds the examples and uses each as a reader would.
package examples_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

const patience = 2 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// example is a program that runs in its own folder until the test ends.
type example struct {
	t   *testing.T
	dir string
	out *bufio.Reader
}

func start(t *testing.T, name string, args ...string) *example {
	t.Helper()
	dir, err := os.MkdirTemp("", "ex") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := exec.Command(testkit.Program(t, name), args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, stderr.String())
		}
	})
	return &example{t, dir, bufio.NewReader(out)}
}

// line returns the next line that the program prints.
func (e *example) line() string {
	e.t.Helper()
	line, err := e.out.ReadString('\n')
	if err != nil {
		e.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// until polls for a change that sends no event; done returns why it has not come yet.
func until(t *testing.T, what string, done func() error) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for err := done(); err != nil; err = done() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited %s in vain for %s: %v", patience, what, err)
		}
	}
}

func TestHTTPSServerRenewsCertificateWhileRunning(t *testing.T) {
	t.Parallel()
	e := start(t, "https-server", "-listen", "127.0.0.1:0", "-ttl", "4s")
	address := e.line()
	seen := map[string]bool{}
	until(t, "another certificate", func() error { // an expired one, of a machine that stands still, counts no more
		serial, err := serial(e, address)
		if err == nil {
			seen[serial] = true
		}
		if len(seen) < 2 {
			return cmp.Or(err, errors.New("it is still the first"))
		}
		return nil
	})
}

// serial makes a request on a connection of its own, and returns the serial number of
// the server's certificate.
func serial(e *example, address string) (string, error) {
	roots, err := os.ReadFile(filepath.Join(e.dir, "ca", "root-cert.pem"))
	if err != nil {
		return "", err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport, Timeout: patience}).Get("https://" + address)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.TLS.PeerCertificates[0].SerialNumber.String(), nil
}

func TestGRPCPeersVerifySPIFFEIDs(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), testkit.Program(t, "grpc-mtls"), "-ca", filepath.Join(t.TempDir(), "ca"))
	log := &strings.Builder{}
	cmd.Stderr = log
	if got, err := cmd.Output(); string(got) != "spiffe://example.org/web is SERVING\n" || err != nil {
		t.Errorf("got %q, %v\n%s", got, err, log)
	}
}

func TestSPIFFELibraryUsesWorkloadAPI(t *testing.T) {
	t.Parallel()
	e := start(t, "workload-api", "-id", "spiffe://example.org/shop")
	address, ok := strings.CutPrefix(e.line(), "SPIFFE_ENDPOINT_SOCKET=")
	if got := spiffeID(t, address); !ok || got != "spiffe://example.org/shop" {
		t.Errorf("got %q at %q", got, address)
	}
}

func spiffeID(t *testing.T, address string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr(address)))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	svid, err := source.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	return svid.ID.String()
}

func TestCustomAgentServesProviderCertificates(t *testing.T) {
	t.Parallel()
	binary := testkit.Program(t, "countersign-provider-file")
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	e := start(t, "custom-agent", "-provider", binary, "-sha256", hex.EncodeToString(sum[:]))
	socket := filepath.Join(e.dir, "spiffe.sock")
	until(t, "the socket", func() error { _, err := os.Lstat(socket); return err })
	if got := spiffeID(t, "unix://"+socket); got != "spiffe://example.org/web" {
		t.Errorf("got %q", got)
	}
	if _, err := os.Lstat(filepath.Join(e.dir, "sds.sock")); err != nil {
		t.Error(err)
	}
}
