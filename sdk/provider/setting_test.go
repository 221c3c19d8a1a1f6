package provider_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

var must = fatal.If

// pairOf returns a certificate of a name, also in files.
func pairOf(t *testing.T, authority *catest.CA, name string) (tls.Certificate, setting.KeyPair) {
	t.Helper()
	chain, key := authority.Pair(0, "", name)
	pair, err := tls.X509KeyPair(chain, key)
	must(t, err)
	dir := t.TempDir()
	files := setting.KeyPair{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	must(t, os.WriteFile(files.CertFile, chain, 0o600))
	must(t, os.WriteFile(files.KeyFile, key, 0o600))
	return pair, files
}

// ask dials the server anew; its answer has the client's name.
func ask(t *testing.T, server *httptest.Server, block setting.TLS) (string, error) {
	t.Helper()
	resp, err := (&rest.Transport{NewTLS: block.Config}).Client().Get(server.URL)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	return string(said), err
}

func TestTLSFilesAreReadForEachHandshake(t *testing.T) {
	authority, other := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	serves, _ := pairOf(t, authority, "ca.example")
	_, client := pairOf(t, authority, "client.example")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) > 0 {
			_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].DNSNames[0])
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{serves}, ClientAuth: tls.RequestClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()

	block := setting.TLS{RootFile: filepath.Join(t.TempDir(), "roots.pem"), ServerName: "ca.example", ClientCertFile: client.CertFile, ClientKeyFile: client.KeyFile}
	if _, err := ask(t, server, block); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
	must(t, os.WriteFile(block.RootFile, other.Bundle().PEM(), 0o600))
	_, err := ask(t, server, block)
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); !untrusted {
		t.Errorf("with other roots: %v", err)
	}
	must(t, os.WriteFile(block.RootFile, authority.Bundle().PEM(), 0o600))
	if said, err := ask(t, server, block); err != nil || said != "client.example" {
		t.Errorf("got %q, %v", said, err)
	}
	nameless := block
	nameless.ServerName = ""
	if _, err := ask(t, server, nameless); err == nil || !strings.Contains(err.Error(), "cannot validate certificate for 127.0.0.1") {
		t.Errorf("with the name of the URL: %v", err)
	}
	must(t, os.WriteFile(client.KeyFile, []byte("sesame"), 0o600))
	if _, err := ask(t, server, block); err == nil || strings.Contains(err.Error(), "sesame") || !strings.Contains(err.Error(), client.KeyFile) {
		t.Errorf("with a broken key: %v", err)
	}
}

func TestTLSWithoutRootFileUsesSystemRoots(t *testing.T) {
	for _, file := range []string{"", setting.SystemRoots} {
		config, err := setting.TLS{RootFile: file}.Config()
		if err != nil || config.RootCAs != nil || config.MinVersion != tls.VersionTLS12 {
			t.Errorf("%q: %+v, %v", file, config, err)
		}
	}
}
