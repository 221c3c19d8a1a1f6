//go:build e2e && cgo

package pkcs11

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/pkcs11"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// libraries are where distributions have SoftHSM's.
var libraries = []string{"/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/softhsm/libsofthsm.so", "/usr/local/lib/softhsm/libsofthsm2.so"}

// softToken is a token of SoftHSM in a folder of the test's.
type softToken struct {
	*Token
	config Config
	log    bytes.Buffer
	mu     sync.Mutex
	pin    string // what PIN answers
}

const goodPIN = "73918264"

// newSoftToken makes a token and opens it. The program is that of Debian's package
// softhsm2, which `make check NAME=step` installs in CI and names in COUNTERSIGN_SOFTHSM.
func newSoftToken(t *testing.T) *softToken {
	t.Helper()
	program := os.Getenv("COUNTERSIGN_SOFTHSM")
	if program == "" {
		t.Fatal("COUNTERSIGN_SOFTHSM is not set: make e2e names softhsm2-util in it")
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "softhsm2.conf")
	if err := os.WriteFile(conf, []byte("directories.tokendir = "+dir+"\nlog.level = ERROR\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOFTHSM2_CONF", conf)
	out, err := exec.Command(program, "--init-token", "--free", "--label", "countersign test", "--so-pin", "12345678", "--pin", goodPIN).CombinedOutput()
	if err != nil {
		t.Fatalf("softhsm2-util: %v\n%s", err, out)
	}
	s := &softToken{pin: goodPIN}
	s.config = Config{Module: library(t), Token: "countersign test", Label: "web", PIN: s.readPIN, Log: slog.New(slog.NewTextHandler(&s.log, nil))}
	s.open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if strings.Contains(s.log.String(), goodPIN) {
			t.Error("the PIN is logged")
		}
	})
	return s
}

func library(t *testing.T) string {
	t.Helper()
	for _, path := range libraries {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatalf("SoftHSM's library is in none of %q", libraries)
	return ""
}

func (s *softToken) open(t *testing.T) {
	t.Helper()
	var err error
	if s.Token, err = Open(t.Context(), s.config); err != nil {
		t.Fatal(err)
	}
}

func (s *softToken) readPIN(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pin, nil
}

func (s *softToken) setPIN(pin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pin = pin
}

// lose ends every session, as a device that was unplugged does.
func (s *softToken) lose(t *testing.T) {
	t.Helper()
	if err := s.module.CloseAllSessions(s.slot); err != nil {
		t.Fatal(err)
	}
}

// count returns how many objects of our label the token has.
func (s *softToken) count(t *testing.T) (n int) {
	t.Helper()
	err := s.with(t.Context(), func(session pkcs11.SessionHandle) error {
		found, err := s.objects(session, pkcs11.NewAttribute(pkcs11.CKA_LABEL, s.config.Label))
		n = len(found)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// hold is an engine with its keys in the token.
func hold(t *testing.T, authority *catest.CA, keys secret.KeySource, keyType pki.KeyType) *secret.Manager {
	t.Helper()
	id, err := pki.NewIdentity("spiffe://example.org/web", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: authority}}, Keys: keys,
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, KeyType: keyType, Authorities: []string{"test"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func get(t *testing.T, m *secret.Manager, name string) *secret.Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	item, err := m.Get(ctx, secret.Caller{}, name)
	if err != nil {
		t.Fatal(err)
	}
	return item
}

// handshake has a server and a client of the same secrets meet, on version.
func handshake(t *testing.T, m *secret.Manager, version uint16) {
	t.Helper()
	options := tlsconfig.Options{Source: m, Certificate: "default", Roots: "ROOTCA", Peer: tlsconfig.TrustDomain("example.org")}
	server, err := tlsconfig.Server(options)
	if err != nil {
		t.Fatal(err)
	}
	client, err := tlsconfig.Client(options)
	if err != nil {
		t.Fatal(err)
	}
	server.MinVersion, server.MaxVersion = version, version
	client.MinVersion, client.MaxVersion = version, version
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, err = io.WriteString(conn, "hello")
			err = errors.Join(err, conn.Close())
		}
		served <- err
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if text, err := io.ReadAll(conn); err != nil || string(text) != "hello" {
		t.Errorf("got %q, %v", text, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestRealTokenKeysServeTLSAndStayInside(t *testing.T) {
	s, authority := newSoftToken(t), catest.NewCA(catest.Options{})
	for _, keyType := range []pki.KeyType{pki.ECDSAP256, pki.ECDSAP384, pki.RSA2048} {
		t.Run(string(keyType), func(t *testing.T) {
			m := hold(t, authority, s, keyType)
			get(t, m, "ROOTCA")
			item := get(t, m, "default")
			handshake(t, m, tls.VersionTLS13)
			handshake(t, m, tls.VersionTLS12)
			s.lose(t)
			handshake(t, m, tls.VersionTLS13)
			s.mustKeep(t, item)
		})
	}
}

// mustKeep tries every way to get the key out.
func (s *softToken) mustKeep(t *testing.T, item *secret.Item) {
	t.Helper()
	if _, err := item.KeyPEM(); !errors.Is(err, secret.ErrNotExportable) || len(item.Key) != 0 {
		t.Errorf("got %v", err)
	}
	if _, err := pki.EncodeKey(item.KeyHandle); err == nil {
		t.Error("the key was encoded")
	}
	key := item.KeyHandle.(*Key)
	if text := fmt.Sprintf("%v %s", key, key); strings.Contains(text, goodPIN) {
		t.Error("the key shows the PIN")
	}
	err := s.with(t.Context(), func(session pkcs11.SessionHandle) error {
		object, err := key.object(session)
		if err != nil {
			return err
		}
		for _, private := range []uint{pkcs11.CKA_VALUE, pkcs11.CKA_PRIVATE_EXPONENT, pkcs11.CKA_PRIME_1} {
			if got, err := s.module.GetAttributeValue(session, object, []*pkcs11.Attribute{pkcs11.NewAttribute(private, nil)}); err == nil {
				t.Errorf("the token gives out %d bytes of attribute %#x", len(got[0].Value), private)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRealTokenIsNotLockedByChangedPIN(t *testing.T) {
	s := newSoftToken(t)
	if _, err := s.NewKey(t.Context(), "default", pki.ECDSAP256); err != nil {
		t.Fatal(err)
	}
	const wrong = "99999999"
	s.setPIN(wrong)
	s.lose(t)
	for i, says := range []string{"was not accepted: ", "is not tried again", "is not tried again"} {
		_, err := s.NewKey(t.Context(), "default", pki.ECDSAP256)
		if ca.ReasonFor(err) != ca.Denied || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), wrong) {
			t.Errorf("try %d: got %v, want %q", i, err, says)
		}
	}
	s.setPIN(goodPIN)
	if _, err := s.NewKey(t.Context(), "default", pki.ECDSAP256); err != nil {
		t.Error(err)
	}
}

func TestRealTokenForgetsUnusedKeysAndThoseOfCrashedRun(t *testing.T) {
	s := newSoftToken(t)
	func() {
		key, err := s.NewKey(t.Context(), "default", pki.ECDSAP256)
		if err != nil || s.count(t) != 2 {
			t.Fatalf("%d objects, %v", s.count(t), err)
		}
		runtime.KeepAlive(key)
	}()
	deadline := time.Now().Add(2 * time.Minute)
	for s.count(t) > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the key is still there")
		}
		runtime.GC()
	}
	key, err := s.NewKey(t.Context(), "default", pki.RSA2048)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.module.Finalize(); err != nil { // the process is gone
		t.Fatal(err)
	}
	s.module.Destroy()
	s.open(t)
	if n := s.count(t); n != 0 {
		t.Errorf("%d objects of the run before are left", n)
	}
	runtime.KeepAlive(key)
}

func TestRealTokenSignsConcurrentlyWhileSessionsAreLost(t *testing.T) {
	s := newSoftToken(t)
	key, err := s.NewKey(t.Context(), "default", pki.ECDSAP256)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{}
	for range 3 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
				if err == nil {
					_, err = x509.ParseCertificateRequest(der)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		s.lose(t)
	}
}

func TestRealMissingTokenIsUnavailable(t *testing.T) {
	s := newSoftToken(t)
	other, missing, nameless := s.config, s.config, s.config
	missing.Module, nameless.Label = "/missing.so", ""
	for says, config := range map[string]Config{"cannot be loaded": missing, "Config.Label is empty": nameless} {
		if _, err := Open(t.Context(), config); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	if _, err := Open(t.Context(), s.config); err == nil || !strings.Contains(err.Error(), "in use by this process") {
		t.Errorf("a second time: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.NewKey(t.Context(), "default", pki.ECDSAP256); ca.ReasonFor(err) != ca.Unavailable {
		t.Errorf("after Close: %v", err)
	}
	other.Token = "another"
	if _, err := Open(t.Context(), other); ca.ReasonFor(err) != ca.Unavailable || !strings.Contains(err.Error(), `no slot`) {
		t.Errorf("another token: %v", err)
	}
	if _, err := s.NewKey(t.Context(), "default", pki.Ed25519); ca.ReasonFor(err) != ca.Invalid {
		t.Errorf("Ed25519: %v", err)
	}
}
