package fileca

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// With one of these variables the test binary is a process of another user, or
// another process, that opens the folder and prints what came of it.
const (
	openFolderOf     = "FILECA_TEST_OPEN"
	openSelfSignedOf = "FILECA_TEST_SELF_SIGNED"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(openFolderOf); dir != "" {
		printOpen(Settings{Dir: dir})
		return
	}
	if dir := os.Getenv(openSelfSignedOf); dir != "" {
		printOpen(Settings{Dir: dir, SelfSigned: true})
		return
	}
	goleak.VerifyTestMain(m)
}

func printOpen(settings Settings) {
	c, err := Open(context.Background(), settings)
	if err != nil {
		fmt.Print(err)
		return
	}
	defer c.Close()
	fmt.Print(c.current.Load().roots.Fingerprints()[0])
}

// itself returns a command that runs the test binary with that variable.
func itself(t *testing.T, variable, dir string) *exec.Cmd {
	t.Helper()
	// Its path may lead through a folder that another user may not enter.
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), variable+"="+dir)
	return cmd
}

const patience = 2 * time.Minute

// folderOf writes the files into a new folder, without those whose content is nil.
func folderOf(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ca")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, files)
	return dir
}

func writeFiles(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, content := range files {
		if content == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// with returns the files with one of them replaced.
func with(files map[string][]byte, name string, content []byte) map[string][]byte {
	changed := maps.Clone(files)
	changed[name] = content
	return changed
}

func mustOpen(t *testing.T, settings Settings) *CA {
	t.Helper()
	c, err := Open(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// names of a request.
type asked struct {
	spiffeID string
	dns, ips []string
}

var web = asked{"spiffe://example.org/ns/shop/sa/web", []string{"web.shop.svc"}, []string{"192.0.2.7", "2001:db8::7"}}

func (a asked) identity(t *testing.T) pki.Identity {
	t.Helper()
	id, err := pki.NewIdentity(a.spiffeID, a.dns, a.ips)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// request asks for these names with a CSR of the same names.
func (a asked) request(t *testing.T, keyType pki.KeyType) (ca.SignRequest, pki.Check) {
	t.Helper()
	key, err := pki.GenerateKey(keyType)
	if err != nil {
		t.Fatal(err)
	}
	id := a.identity(t)
	csr, err := pki.CreateCSR(key, id)
	if err != nil {
		t.Fatal(err)
	}
	return a.asking(csr), pki.Check{Key: key.Public(), Identity: id, Now: time.Now()}
}

func (a asked) asking(csr []byte) ca.SignRequest {
	req := ca.SignRequest{ID: "5ff3a8c4-5c46-4f0b-a7e7-4a6d8a9b2a11", CSR: csr, SubjectID: a.spiffeID, DNSNames: a.dns}
	for _, ip := range a.ips {
		req.IPAddresses = append(req.IPAddresses, netip.MustParseAddr(ip))
	}
	return req
}

// sign has the request signed and holds the reply against the agent's own check.
func sign(t *testing.T, c *CA, req ca.SignRequest, check pki.Check) *pki.Chain {
	t.Helper()
	reply, err := c.CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if check.Roots, err = pki.ParseBundle(reply.Roots); err != nil {
		t.Fatal(err)
	}
	chain, err := check.Chain(reply.Chain)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// mustHaveNames demands that the leaf has these names and no others.
func mustHaveNames(t *testing.T, cert ca.Certificate, want asked) {
	t.Helper()
	certs, err := pki.ParseCertificates(cert.Chain)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pki.IdentityOf(certs[0])
	if err != nil || !got.Equal(want.identity(t)) || certs[0].Subject.CommonName != "" {
		t.Errorf("it has %q and the subject %q, %v; want %q", got, certs[0].Subject, err, want.identity(t))
	}
}

func rootOf(t *testing.T, authority *catest.CA) *x509.Certificate {
	t.Helper()
	return authority.Bundle().Certificates()[0]
}

// logged is a log handler that keeps warnings and errors.
type logged struct {
	slog.Handler
	records chan slog.Record
}

func newLogged() *logged { return &logged{records: make(chan slog.Record, 100)} }

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		l.records <- r
	}
	return nil
}

// next waits for a message and returns it with its error.
func (l *logged) next(t *testing.T) string {
	t.Helper()
	select {
	case r := <-l.records:
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
		return text
	case <-time.After(patience):
		t.Fatal("nothing was logged")
		return ""
	}
}

func (l *logged) mustBeSilent(t *testing.T) {
	t.Helper()
	if len(l.records) > 0 {
		t.Errorf("logged, and should not: %s", l.next(t))
	}
}
