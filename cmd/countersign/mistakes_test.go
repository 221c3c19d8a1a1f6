package main

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

// scripted lets a script's commands use helpers of tests.
type scripted struct {
	testing.TB // nil: what is not below is not used
	ts         *testscript.TestScript
}

func (s scripted) Helper()           {}
func (s scripted) Fatal(args ...any) { s.ts.Fatalf("%v", args) }

// makeAuthority is "authority DIR FROM UNTIL": a CA for the provider "file", valid between two moments
// that are named from now on.
func makeAuthority(ts *testscript.TestScript, _ bool, args []string) {
	dir, now := ts.MkAbs(args[0]), time.Now()
	from, err := time.ParseDuration(args[1])
	ts.Check(err)
	until, err := time.ParseDuration(args[2])
	ts.Check(err)
	tb := scripted{ts: ts}
	made := certtest.SelfSigned(tb, &x509.Certificate{
		Subject: pkix.Name{CommonName: args[0]}, NotBefore: now.Add(from), NotAfter: now.Add(until),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	ts.Check(os.MkdirAll(dir, 0o700))
	for name, content := range map[string][]byte{"ca-cert.pem": made.PEM(), "root-cert.pem": made.PEM(), "ca-key.pem": made.KeyPEM(tb)} {
		ts.Check(os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
}

// listen is "listen FILE": a server without TLS on loopback, whose address it writes.
func listen(ts *testscript.TestScript, _ bool, args []string) {
	serve(ts, args[0], httptest.NewServer)
}

// serveTLS is "tlsserver FILE": the same with a certificate of a root of its own.
func serveTLS(ts *testscript.TestScript, _ bool, args []string) {
	serve(ts, args[0], func(h http.Handler) *httptest.Server {
		server := httptest.NewUnstartedServer(h)
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes, which are to fail
		server.TLS = &tls.Config{Certificates: []tls.Certificate{*certtest.Loopback(scripted{ts: ts}).TLS()}}
		server.StartTLS()
		return server
	})
}

func serve(ts *testscript.TestScript, file string, start func(http.Handler) *httptest.Server) {
	server := start(http.NotFoundHandler())
	ts.Defer(server.Close)
	ts.Check(os.WriteFile(ts.MkAbs(file), []byte(server.Listener.Addr().(*net.TCPAddr).String()), 0o600))
}

// Each message that the page shows is one that the script demands, in the section of the same number.
func TestTroubleshootingShowsWhatIsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("testdata/mistakes.txtar")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(script), "\n# ")[1:] {
		number, text, _ := strings.Cut(section, ". ")
		sections[number] = unpatterned.Replace(text)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| [^|]* \| ([^|]*) \|`).FindAllStringSubmatch(string(page), -1)
	if len(rows) != 25 {
		t.Errorf("the page has %d mistakes", len(rows))
	}
	for _, row := range rows {
		for _, code := range regexp.MustCompile("`[^`]*`").FindAllString(row[2], -1) {
			for part := range strings.SplitSeq(strings.Trim(code, "`"), "…") {
				if !strings.Contains(sections[row[1]], strings.TrimSpace(part)) {
					t.Errorf("%s. no test demands %q", row[1], part)
				}
			}
		}
	}
}

// unpatterned makes a pattern of the script the text that it stands for.
var unpatterned = strings.NewReplacer(`\(`, "(", `\)`, ")", `\?`, "?", `.s `, "'s ", `\d+`, "…", "20.*", "…", ".*", "…", `[0-9a-f]{64}`, "…")
