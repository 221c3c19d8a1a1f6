package program

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/programtest"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/polling"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

const patience = 2 * time.Minute

func TestMain(m *testing.M) { programtest.Main(m, Run) }

// program is a running service.
type program struct {
	*proctest.Process
	dir string // with its files: c.yaml, ca, resources, page (its socket)
	log *logged

	exits int // with this code, at the end of the test
}

// logged is what a process writes, to be waited for.
type logged struct{ *logtest.Log }

// await returns what the pattern's group matched as soon as it is written.
func (l *logged) await(t *testing.T, pattern string) (group string) {
	t.Helper()
	l.Await(t, patience, pattern, func(text string) bool {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m != nil {
			group = m[len(m)-1]
		}
		return m != nil
	})
	return group
}

// eventually waits for what another process does.
func eventually(t *testing.T, is func() bool, what string, log fmt.Stringer) {
	t.Helper()
	polling.Until(t, patience, what, is, log.String)
}

// files makes those of a service; its configuration is text, in which DIR is the folder
// and PROVIDERS is the file provider with a CA of its own.
func files(t *testing.T, text string) string {
	t.Helper()
	dir := proctest.Folder(t)
	text = strings.ReplaceAll(text, "PROVIDERS", "dev: true\nproviders: [{name: file, settings: {dir: DIR/ca, self_signed: true}}]")
	write(t, filepath.Join(dir, "c.yaml"), strings.ReplaceAll(text, "DIR", dir))
	if err := os.Mkdir(filepath.Join(dir, "resources"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// command is the program with arguments, in an environment of its own.
func command(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return programtest.Command(ctx, t, environment(t), args...)
}

func environment(t *testing.T) environ.Vars {
	t.Helper()
	return programtest.Environment(t, "countersign-provider-file")
}

// says runs a command that serves nothing, in this process, and returns all that it writes.
func says(t *testing.T, env environ.Vars, args ...string) (text string, code int) {
	t.Helper()
	var out strings.Builder
	code = Run(t.Context(), args, env, cli.IO{In: strings.NewReader(""), Out: &out, Err: &out})
	return out.String(), code
}

// start runs a service on the files of a folder; it ends with the test.
func start(t *testing.T, dir string) *program {
	t.Helper()
	cmd := command(context.WithoutCancel(t.Context()), t, "serve", "--config", filepath.Join(dir, "c.yaml")) // it may skip the test
	p := &program{dir: dir}
	t.Cleanup(func() {
		if code := p.Ended().ExitCode(); code != p.exits {
			t.Errorf("it ended with %d, not with %d:\n%s", code, p.exits, p.log)
		}
	})
	p.Process = proctest.Start(t, cmd)
	p.log = &logged{p.Log}
	return p
}

// end asks it to drain, and returns its exit code.
func (p *program) end() int {
	p.Stop(syscall.SIGTERM)
	return p.Ended().ExitCode()
}

func (p *program) tls(t *testing.T) string {
	t.Helper()
	return p.log.await(t, `"serving ADS and SDS over TLS" address=(\S+)`)
}

// ready waits until the service says so.
func (p *program) ready(t *testing.T) {
	t.Helper()
	p.tls(t)
	eventually(t, func() bool { code, _ := p.page(t, "/readyz"); return code == http.StatusOK }, "it is ready", p.log)
}

// page asks the page at its socket.
func (p *program) page(t *testing.T, path string) (int, string) {
	t.Helper()
	return get(t, "unix:"+filepath.Join(p.dir, "page"), path)
}

// status runs the command.
func (p *program) status(t *testing.T, args ...string) string {
	t.Helper()
	out, code := says(t, nil, append([]string{"status", "--address", "unix:" + filepath.Join(p.dir, "page")}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	return out
}

// authority is the CA of a service, by which a test signs clients.
type authority struct {
	*certtest.Pair
	roots *x509.CertPool
}

func authorityOf(of *certtest.Pair) authority {
	a := authority{of, x509.NewCertPool()}
	a.roots.AddCert(of.Cert)
	return a
}

func (p *program) authority(t *testing.T) authority {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(p.dir, "ca", "ca-cert.pem"), filepath.Join(p.dir, "ca", "ca-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return authorityOf(&certtest.Pair{Cert: cert.Leaf, Key: cert.PrivateKey.(*ecdsa.PrivateKey)})
}

// client is the TLS of a client with that SPIFFE ID; without one it shows no certificate.
func (a authority) client(t *testing.T, id string) *tls.Config {
	t.Helper()
	cfg := &tls.Config{RootCAs: a.roots, ServerName: "discovery.test", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	if id != "" {
		cfg.Certificates = []tls.Certificate{a.sign(t, certificate{id: id})}
	}
	return cfg
}

// certificate is what is special about a leaf: one hour with the serial number 7 and no
// name otherwise.
type certificate struct {
	serial  int64
	dns, id string
	ip      net.IP
	expired bool
}

func (c certificate) template(t *testing.T) *x509.Certificate {
	t.Helper()
	out := &x509.Certificate{
		SerialNumber: big.NewInt(cmp.Or(c.serial, 7)), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if c.expired {
		out.NotAfter = time.Now().Add(-time.Minute)
	}
	if c.dns != "" {
		out.DNSNames = []string{c.dns}
	}
	if c.ip != nil {
		out.IPAddresses = []net.IP{c.ip}
	}
	if c.id != "" {
		uri, err := url.Parse(c.id)
		if err != nil {
			t.Fatal(err)
		}
		out.URIs = []*url.URL{uri}
	}
	return out
}

func (a authority) sign(t *testing.T, of certificate) tls.Certificate {
	t.Helper()
	return *a.issue(t, of.template(t)).TLS()
}

// issue signs what the template says; without an end it is good for an hour.
func (a authority) issue(t *testing.T, template *x509.Certificate) *certtest.Pair {
	t.Helper()
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	}
	template.KeyUsage, template.BasicConstraintsValid = x509.KeyUsageDigitalSignature, true
	return a.Issue(t, template)
}

// write puts a chain and its key into two files.
func (a authority) write(t *testing.T, of certificate, chainFile, keyFile string) {
	t.Helper()
	signed := a.issue(t, of.template(t))
	write(t, keyFile, string(signed.KeyPEM(t)))
	write(t, chainFile, string(signed.PEM()))
}

// newAuthority is a CA of the test's own.
func newAuthority(t *testing.T) authority {
	t.Helper()
	return authorityOf(certtest.Root(t))
}
