package fileca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestEveryKeyTypeAndEncodingSigns(t *testing.T) {
	if testing.Short() {
		t.Skip("generates RSA keys")
	}
	pkcs1 := func(key any) (string, []byte) {
		return "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key.(*rsa.PrivateKey))
	}
	sec1 := func(key any) (string, []byte) {
		der, err := x509.MarshalECPrivateKey(key.(*ecdsa.PrivateKey))
		if err != nil {
			t.Fatal(err)
		}
		return "EC PRIVATE KEY", der
	}
	for name, test := range map[string]struct {
		keyType pki.KeyType
		form    func(any) (string, []byte) // nil: PKCS #8
	}{
		"rsa-pkcs1": {pki.RSA2048, pkcs1}, "rsa-pkcs8": {pki.RSA2048, nil},
		"p256-sec1": {pki.ECDSAP256, sec1}, "p256-pkcs8": {pki.ECDSAP256, nil},
		"p384-sec1": {pki.ECDSAP384, sec1}, "p384-pkcs8": {pki.ECDSAP384, nil},
		"ed25519-pkcs8": {pki.Ed25519, nil},
		"ml-dsa-44":     {pki.MLDSA44, nil}, "ml-dsa-65": {pki.MLDSA65, nil}, "ml-dsa-87": {pki.MLDSA87, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := pki.ParseKeyType(string(test.keyType)); err != nil {
				t.Skip(err) // sdk/pki tests that this is for a build without ML-DSA alone
			}
			files := catest.NewCA(catest.Options{KeyType: test.keyType, Intermediates: 1}).IstioFiles()
			if test.form != nil {
				key, err := pki.ParseKey(files[keyFile])
				if err != nil {
					t.Fatal(err)
				}
				label, der := test.form(key)
				files[keyFile] = pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der})
			}
			c := mustOpen(t, Settings{Dir: folderOf(t, files)})
			for _, leaf := range []pki.KeyType{pki.ECDSAP256, test.keyType} {
				req, check := web.request(t, leaf)
				sign(t, c, req, check)
			}
		})
	}
}

func TestChainIsFoundInAnyFileLayout(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 3})
	files := authority.IstioFiles()
	path, err := pki.ParseCertificates(files[chainFile])
	if err != nil {
		t.Fatal(err)
	}
	encode := func(certs ...*x509.Certificate) []byte { return pki.EncodeCertificates(certs) }
	root := rootOf(t, authority)
	for name, chain := range map[string][]byte{
		"the-ca-and-up":          encode(path[0], path[1], path[2]),
		"with-the-root-as-istio": encode(path[0], path[1], path[2], root),
		"only-above-the-ca":      encode(path[1], path[2]),
		"in-another-order":       encode(root, path[2], path[1]),
	} {
		t.Run(name, func(t *testing.T) {
			c := mustOpen(t, Settings{Dir: folderOf(t, with(files, chainFile, chain))})
			req, check := web.request(t, "")
			if got := sign(t, c, req, check); len(got.Certificates) != 4 {
				t.Errorf("the chain has %d certificates", len(got.Certificates))
			}
		})
	}
}

func TestCAUnderRootNeedsNoChainFile(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 1})
	for name, content := range map[string][]byte{"missing": nil, "empty": []byte("\n")} {
		t.Run(name, func(t *testing.T) {
			c := mustOpen(t, Settings{Dir: folderOf(t, with(authority.IstioFiles(), chainFile, content))})
			req, check := web.request(t, "")
			sign(t, c, req, check)
		})
	}
}

// What is missing may come: a folder is mounted, or filled file by file.
func TestMissingFileIsUnavailable(t *testing.T) {
	dir, files := t.TempDir(), catest.NewCA(catest.Options{Intermediates: 1}).IstioFiles()
	for dir, file := range map[string]string{
		dir: certFile, filepath.Join(dir, "none"): certFile,
		folderOf(t, with(files, keyFile, nil)): keyFile, folderOf(t, with(files, rootFile, nil)): rootFile,
	} {
		_, err := Open(t.Context(), Settings{Dir: dir})
		if !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), filepath.Join(dir, file)+": no such file") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// A clock may be set late, and an expired CA be replaced.
func TestCAOutsideItsLifetimeIsUnavailable(t *testing.T) {
	aYearAgo := func() time.Time { return time.Now().Add(-365 * 24 * time.Hour) }
	expired := catest.NewCA(catest.Options{Now: aYearAgo, CALifetime: 24 * time.Hour}).IstioFiles()
	inAYear := func() time.Time { return time.Now().Add(365 * 24 * time.Hour) }
	future := catest.NewCA(catest.Options{Now: inAYear}).IstioFiles()
	for says, files := range map[string]map[string][]byte{"expired at": expired, "not valid before": future} {
		_, err := Open(t.Context(), Settings{Dir: folderOf(t, files)})
		if !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), certFile+": "+says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// A folder that comes while it is looked for is away or there, and never wrong: an invalid
// one is not looked at again.
func TestFolderThatComesDuringTheStartIsNotInvalid(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	away, dir := folderOf(t, catest.NewCA(catest.Options{Intermediates: 1}).IstioFiles()), filepath.Join(t.TempDir(), "ca")
	from, to := away, dir
	moved, stop := make(chan error, 1), make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				moved <- nil
				return
			default:
			}
			if err := os.Rename(from, to); err != nil {
				moved <- err
				return
			}
			from, to = to, from
		}
	}()
	for range 40 {
		c, err := Open(t.Context(), Settings{Dir: dir})
		if err == nil {
			c.Close()
		} else if !errors.Is(err, ca.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-moved; err != nil {
		t.Error(err)
	}
}

func TestInconsistentFolderIsAnErrorWithPath(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 2})
	good := authority.IstioFiles()
	other := catest.NewCA(catest.Options{}).IstioFiles()
	set := func(name string, content []byte) map[string][]byte { return with(good, name, content) }
	for name, test := range map[string]struct {
		files map[string][]byte
		file  string // that the error names
		says  string
	}{
		"key-of-another-certificate": {set(keyFile, other[keyFile]), keyFile, "not the key of ca-cert.pem"},
		"encrypted-key":              {set(keyFile, []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")), keyFile, "encrypted"},
		"certificate-as-key":         {set(keyFile, good[certFile]), keyFile, "not a private key"},
		"garbage-as-certificate":     {set(certFile, []byte("hello")), certFile, "no PEM block"},
		"garbage-as-root":            {set(rootFile, []byte("hello")), rootFile, "no PEM block"},
		"garbage-as-chain":           {set(chainFile, []byte("hello")), chainFile, "no PEM block"},
		"two-certificates":           {set(certFile, append(good[certFile], good[rootFile]...)), certFile, "has 2 certificates"},
		"leaf-as-ca":                 {selfMade(t, func(c *x509.Certificate) { c.IsCA = false; c.KeyUsage = x509.KeyUsageDigitalSignature }), certFile, "not a CA certificate"},
		"ca-without-key-cert-sign":   {selfMade(t, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }), certFile, "does not allow signing"},
		"root-of-another-ca":         {set(rootFile, other[rootFile]), certFile, "does not chain to a root of root-cert.pem"},
		"intermediate-as-root":       {set(rootFile, good[certFile]), rootFile, "not self-signed"},
		"intermediate-missing":       {set(chainFile, good[certFile]), certFile, "does not chain to a root"},
		"path-length-exceeded":       {below(t, func(c *x509.Certificate) { c.MaxPathLenZero = true }), certFile, "allows 0 CAs below it, found 1"},
		"a-mebibyte-and-more":        {set(rootFile, make([]byte, 1<<20+1)), rootFile, "more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folderOf(t, test.files)
			c, err := Open(t.Context(), Settings{Dir: dir})
			if err == nil {
				c.Close()
				t.Fatal("it was opened")
			}
			path := filepath.Join(dir, test.file)
			if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v\nwant an invalid %s with %q", err, path, test.says)
			}
		})
	}
}

func TestUselessRootIsLeftOutOfFolder(t *testing.T) {
	good := catest.NewCA(catest.Options{}).IstioFiles()
	useless, err := os.ReadFile("testdata/brainpool.pem")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c, err := Open(t.Context(), Settings{Dir: folderOf(t, with(good, rootFile, append(useless, good[rootFile]...))), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	roots, err := c.Roots(t.Context())
	c.Close() // logs nothing any more
	if err != nil || !bytes.Equal(roots, good[rootFile]) || !strings.Contains(log.String(), "brainpoolP256r1") {
		t.Errorf("%s, %v\n%s", roots, err, &log)
	}
	damaged := append([]byte("-----BEGIN CERTIFICATE-----\nMAA"), good[rootFile]...) // it may be half written
	if c, err := Open(t.Context(), Settings{Dir: folderOf(t, with(good, rootFile, damaged))}); err == nil || !errors.Is(err, pki.ErrMalformed) {
		if err == nil {
			c.Close()
		}
		t.Errorf("damaged: %v", err)
	}
}

// selfMade is a self-signed set with a change, whose root file is another's.
func selfMade(t *testing.T, change func(*x509.Certificate)) map[string][]byte {
	t.Helper()
	key, _ := pki.GenerateKey("")
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "self-made"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, _ := pki.EncodeKey(key)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return map[string][]byte{certFile: cert, keyFile: keyPEM, rootFile: cert}
}

// below is a CA under a root with a change; it ends after three hours, the root
// after one.
func below(t *testing.T, change func(root *x509.Certificate)) map[string][]byte {
	t.Helper()
	files := selfMade(t, change)
	root, err := pki.ParseCertificates(files[rootFile])
	if err != nil {
		t.Fatal(err)
	}
	rootKey, _ := pki.ParseKey(files[keyFile])
	key, _ := pki.GenerateKey("")
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "below"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(3 * time.Hour),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, root[0], key.Public(), rootKey)
	if err != nil {
		t.Fatal(err)
	}
	files[certFile] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	files[keyFile], _ = pki.EncodeKey(key)
	return files
}

func TestUnreadableFileIsAnErrorWithPath(t *testing.T) {
	dir := folderOf(t, catest.NewCA(catest.Options{Intermediates: 1}).IstioFiles())
	key := filepath.Join(dir, keyFile)
	if err := os.Chmod(key, 0); err != nil {
		t.Fatal(err)
	}
	// Root reads everything, so another user has to try.
	for _, path := range []string{filepath.Dir(filepath.Dir(dir)), filepath.Dir(dir), dir} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{certFile, chainFile, rootFile} {
		if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := itself(t, openFolderOf, dir)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if want := "open " + key + ": permission denied"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: %s\nwant %q", err, out, want)
	}
}

func TestNamedPipeIsRefusedWithoutHanging(t *testing.T) {
	dir := folderOf(t, with(catest.NewCA(catest.Options{}).IstioFiles(), keyFile, nil))
	if err := syscall.Mkfifo(filepath.Join(dir, keyFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Settings{Dir: dir}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}

func TestReadableKeyIsWarnedAbout(t *testing.T) {
	for mode, warned := range map[os.FileMode]bool{0o600: false, 0o440: false, 0o640: false, 0o644: true, 0o660: true} {
		dir := folderOf(t, catest.NewCA(catest.Options{}).IstioFiles())
		path := filepath.Join(dir, keyFile)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		log := newLogged()
		mustOpen(t, settingsWithLog(dir, log))
		if !warned {
			log.mustBeSilent(t)
		} else if text := log.next(t); !strings.Contains(text, path) {
			t.Errorf("mode %o: %s", mode, text)
		}
	}
}

func TestWrongSettingIsNamedWithValue(t *testing.T) {
	for says, settings := range map[string]Settings{
		`dir is not set`:                {},
		`max_ttl is -1h0m0s`:            {Dir: "x", MaxTTL: -time.Hour},
		`poll_interval is 1ms`:          {Dir: "x", PollInterval: time.Millisecond},
		`trust_domain: trust domain "A`: {Dir: "x", TrustDomain: "A B"},
	} {
		if err := settings.Validate(); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		if _, err := Open(t.Context(), settings); !errors.Is(err, ca.ErrInvalid) {
			t.Errorf("open: %v", err)
		}
	}
	if err := (Settings{Dir: "x", MaxTTL: 90 * time.Minute, PollInterval: time.Second, TrustDomain: "example.org"}).Validate(); err != nil {
		t.Error(err)
	}
}
