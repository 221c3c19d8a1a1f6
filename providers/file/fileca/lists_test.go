package fileca

import (
	"bytes"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// listsOf returns the CA's lists, parsed.
func listsOf(t *testing.T, c *CA) (lists []*x509.RevocationList, issuers []*x509.Certificate) {
	t.Helper()
	text, err := c.Revocations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if lists, issuers, err = pki.ParseCRLs(text); err != nil {
		t.Fatal(err)
	}
	return lists, issuers
}

func TestListOfNothingIsSignedWithoutFiles(t *testing.T) {
	for _, key := range []string{"ecdsa-p256", "ml-dsa-65"} {
		t.Run(key, func(t *testing.T) {
			if _, err := pki.ParseKeyType(key); err != nil {
				t.Skip(err) // sdk/pki tests that this is for a build without ML-DSA alone
			}
			c := mustOpen(t, Settings{Dir: filepath.Join(t.TempDir(), "ca"), SelfSigned: true, KeyType: key})
			lists, issuers := listsOf(t, c)
			if len(lists) != 1 || len(issuers) != 0 || !pki.SignedCRL(lists[0], c.current.Load().cert) || !pki.CRLCurrent(lists[0], time.Now()) || len(lists[0].RevokedCertificateEntries) != 0 {
				t.Errorf("%+v, %d issuers", lists, len(issuers))
			}
		})
	}
}

// clocked opens a folder with a clock that the test sets.
func clocked(t *testing.T, dir string) (*CA, *time.Time) {
	t.Helper()
	now := time.Now()
	limits, err := Settings{Dir: dir}.parse()
	if err != nil {
		t.Fatal(err)
	}
	f, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &CA{dir: dir, limits: limits, log: slog.New(slog.DiscardHandler), now: func() time.Time { return now }}
	if err := c.take(f); err != nil {
		t.Fatal(err)
	}
	return c, &now
}

func TestListFollowsRevokedSerials(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	mustOpen(t, Settings{Dir: dir, SelfSigned: true})
	c, now := clocked(t, dir)
	last, _ := listsOf(t, c)
	later := func(what string, wants int) {
		t.Helper()
		next, _ := listsOf(t, c)
		if !pki.LaterCRL(next[0], last[0]) || len(next[0].RevokedCertificateEntries) != wants {
			t.Errorf("%s: number %v with %d after %v", what, next[0].Number, len(next[0].RevokedCertificateEntries), last[0].Number)
		}
		last = next
	}
	*now = now.Add(time.Second)
	if next, _ := listsOf(t, c); !bytes.Equal(next[0].Raw, last[0].Raw) {
		t.Error("it is signed again without need")
	}
	writeFiles(t, dir, map[string][]byte{revokedFile: []byte("# stolen in May\n0a:FF:01 # db-7\n\n1234\n")})
	later("two serials", 2)
	if got := last[0].RevokedCertificateEntries[0].SerialNumber.Text(16); got != "aff01" {
		t.Errorf("it revokes %s", got)
	}
	*now = now.Add(listLife/2 + time.Second)
	later("half its life is over", 2)
	*now = now.Add(time.Second)
	if err := os.Remove(filepath.Join(dir, revokedFile)); err != nil {
		t.Fatal(err)
	}
	later("the file is gone", 0)
}

func TestWrongSerialsAreNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	c := mustOpen(t, Settings{Dir: dir, SelfSigned: true})
	for text, says := range map[string]string{
		"12\nsesame\n":                           "line 2 is not a serial number",
		"-12":                                    "line 1 is not a serial number",
		"0":                                      "line 1 is not a serial number",
		strings.Repeat("f", 44):                  "line 1 is not a serial number",
		strings.Repeat("abcdef\n", maxRevoked+1): "more than 20000 serial numbers",
		strings.Repeat("#", 2<<20):               revokedFile,
	} {
		writeFiles(t, dir, map[string][]byte{revokedFile: []byte(text)})
		if _, err := c.Revocations(t.Context()); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), revokedFile) {
			t.Errorf("%.20q: got %v, want %q", text, err, says)
		}
	}
	writeFiles(t, dir, map[string][]byte{revokedFile: []byte(strings.Repeat(strings.Repeat("f", 40)+"\n", maxRevoked))})
	if lists, _ := listsOf(t, c); len(lists[0].RevokedCertificateEntries) != maxRevoked {
		t.Error("as many as are allowed do not fit")
	}
}

// The operator's own lists come with those of the CA above, and with the CAs that signed them.
func TestListsOfOperatorAreReturned(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 1})
	dir := filepath.Join(t.TempDir(), "ca")
	c := mustOpen(t, Settings{Dir: dir, SelfSigned: true})
	above := authority.CRLs(catest.CRL{Number: 5})
	writeFiles(t, dir, map[string][]byte{listFile: above[0]})
	if lists, _ := listsOf(t, c); len(lists) != 2 || !bytes.Equal(pki.EncodeCRLs(lists[:1]), above[0]) {
		t.Errorf("%d lists", len(lists))
	}
	own, err := c.current.Load().list(nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text := pki.EncodeCRLs([]*x509.RevocationList{own})
	writeFiles(t, dir, map[string][]byte{listFile: text, revokedFile: []byte("12")})
	if got, err := c.Revocations(t.Context()); err != nil || !bytes.Equal(got, text) {
		t.Errorf("with a list of the CA itself: %v, %s", err, got)
	}
	writeFiles(t, dir, map[string][]byte{listFile: []byte("cut off")})
	if _, err := c.Revocations(t.Context()); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), listFile) {
		t.Errorf("malformed: %v", err)
	}
}

func TestCAThatMayNotSignListsReportsIt(t *testing.T) {
	dir := folderOf(t, selfMade(t, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign }))
	c := mustOpen(t, Settings{Dir: dir})
	if _, err := c.Revocations(t.Context()); !errors.Is(err, ca.ErrUnimplemented) || !strings.Contains(err.Error(), "cRLSign") {
		t.Errorf("got %v", err)
	}
}
