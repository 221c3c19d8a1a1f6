package output_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"go.uber.org/goleak"
	"software.sslmate.com/src/go-pkcs12"

	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// asProgram in the environment makes the test binary a program that waits for a
// signal and reports it.
const asProgram = "OUTPUT_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		waitForHangup()
		return
	}
	if pidFile := os.Getenv(asSender); pidFile != "" {
		sendAsOther(pidFile)
		return
	}
	goleak.VerifyTestMain(m)
}

const patience = 2 * time.Minute

var must = fatal.If

func TestFilesFollowEveryRotation(t *testing.T) {
	source, dir := newRotating(t), filepath.Join(t.TempDir(), "made", "here")
	r := start(t, output.Config{Folder: dir}, source)
	for n := range 5 {
		if n > 0 {
			source.rotate()
		}
		r.await(output.Written)
		item := source.held("default")
		if !bytes.Equal(read(t, dir, "cert-chain.pem"), item.Chain) || !bytes.Equal(read(t, dir, "key.pem"), item.Key) ||
			!bytes.Equal(read(t, dir, "root-cert.pem"), source.held("ROOTCA").Roots) {
			t.Fatal("the files are not what is held")
		}
	}
	for name, mode := range map[string]fs.FileMode{"key.pem": 0o600, "cert-chain.pem": 0o644, "root-cert.pem": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if info.Mode() != mode {
			t.Errorf("%s has mode %s", name, info.Mode())
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 3 {
		t.Errorf("other files were left: %v", entries)
	}
	if strings.Contains(r.log.String(), strings.Split(string(source.held("default").Key), "\n")[1]) {
		t.Error("the key was logged")
	}
}

func TestReaderSeesConsistentSet(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	source, dir := newRotating(t), t.TempDir()
	r := start(t, output.Config{Folder: dir, Link: "current", Files: []output.File{
		{Name: "key.pem", Content: output.Key}, {Name: "chain.pem", Content: output.Chain}, {Name: "both.pem", Content: output.Combined},
	}}, source)
	r.await(output.Written)
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- loadUntil(stop, dir) }()
	for range 20 {
		source.rotate()
		r.await(output.Written)
	}
	close(stop)
	must(t, <-ended)
	if entries, _ := os.ReadDir(dir); len(entries) > 3 {
		t.Errorf("old sets were left: %v", entries)
	}
}

// loadUntil demands that key and chain fit whenever they are read: through one
// look at the link, or from one file.
func loadUntil(stop <-chan struct{}, dir string) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		set, err := os.Readlink(filepath.Join(dir, "current"))
		if err != nil {
			return err
		}
		set = filepath.Join(dir, set)
		if _, err := tls.LoadX509KeyPair(filepath.Join(set, "chain.pem"), filepath.Join(set, "key.pem")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err // one that is gone was two sets ago
		}
		both, err := os.ReadFile(filepath.Join(dir, "current", "both.pem"))
		if err == nil {
			_, err = tls.X509KeyPair(both, both)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

func TestFlatLayoutWritesKeyLastThenReloads(t *testing.T) {
	source, dir := newRotating(t), t.TempDir()
	watcher, err := fsnotify.NewBufferedWatcher(100)
	must(t, err, watcher.Add(dir))
	defer watcher.Close()
	key := filepath.Join(dir, "key.pem")
	r := start(t, output.Config{Folder: dir, Reload: func(context.Context, *slog.Logger) error {
		_, err := os.Stat(key)
		return err
	}}, source)
	r.await(output.Reloaded)
	var order []string
	for len(order) < 3 {
		event := <-watcher.Events
		if name := filepath.Base(event.Name); event.Has(fsnotify.Create) && !strings.HasPrefix(name, ".") {
			order = append(order, name)
		}
	}
	if order[2] != "key.pem" {
		t.Errorf("the files got their names in the order %v", order)
	}
}

// No server starts with an empty file of revocation lists.
func TestRevocationListsAreWrittenOrNothingIs(t *testing.T) {
	dir := t.TempDir()
	held := newRotating(t)
	bare := held.held("ROOTCA")
	source := secrettest.New(bare, held.held("default"))
	r := start(t, output.Config{Folder: dir, Files: []output.File{{Name: "crl.pem", Content: output.CRL}}}, source)
	r.await(output.WriteFailed)
	listed := *bare
	listed.CRLs, listed.Version = []byte("lists"), "listed"
	source.Put(&listed)
	r.await(output.Written)
	if got := read(t, dir, "crl.pem"); string(got) != "lists" {
		t.Errorf("the file holds %q", got)
	}
}

func TestStoresHoldCurrentSecrets(t *testing.T) { storesHold(t, newRotating(t)) }

func TestStoresHoldMLDSA(t *testing.T) {
	if _, err := pki.ParseKeyType(string(pki.MLDSA44)); err != nil {
		t.Skip(err)
	}
	storesHold(t, newRotatingOf(t, pki.MLDSA44))
}

func storesHold(t *testing.T, source *rotating) {
	t.Helper()
	dir := t.TempDir()
	r := start(t, output.Config{Folder: dir, Password: func() (string, error) { return "open sesame", nil }, Files: []output.File{
		{Name: "key.p12", Content: output.PKCS12}, {Name: "roots.p12", Content: output.PKCS12Roots}, {Name: "roots.jks", Content: output.JKSRoots},
	}}, source)
	r.await(output.Written)
	item := source.held("default")
	key, leaf, above, err := pkcs12.DecodeChain(read(t, dir, "key.p12"), "open sesame")
	must(t, err)
	if !pki.SameKey(key.(crypto.Signer).Public(), leaf.PublicKey) || pki.Fingerprint(leaf) != item.Fingerprint || len(above) != 1 {
		t.Errorf("the keystore holds %s and %d more", leaf.Subject, len(above))
	}
	roots, err := pkcs12.DecodeTrustStore(read(t, dir, "roots.p12"), "open sesame")
	must(t, err)
	if !bytes.Equal(pki.EncodeCertificates(roots), source.held("ROOTCA").Roots) {
		t.Error("the truststore holds other roots")
	}
	store := keystore.New()
	must(t, store.Load(bytes.NewReader(read(t, dir, "roots.jks")), []byte("open sesame")))
	entry, err := store.GetTrustedCertificateEntry(store.Aliases()[0])
	must(t, err)
	if _, err := x509.ParseCertificate(entry.Certificate.Content); err != nil || len(store.Aliases()) != 1 {
		t.Errorf("%v, %v", store.Aliases(), err)
	}
	if info, err := os.Stat(filepath.Join(dir, "key.p12")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the keystore has mode %v", info.Mode())
	}
}

func TestWrongOutputsAreRefused(t *testing.T) {
	good := output.Config{Name: "n", Pair: "default", Bundle: "ROOTCA", Folder: "x", Files: output.IstioFiles()}
	for says, change := range map[string]func(*output.Config){
		"name a folder":      func(c *output.Config) { c.Folder = "" },
		"at least one file":  func(c *output.Config) { c.Files = nil },
		"without a folder":   func(c *output.Config) { c.Files = []output.File{{Name: "../key", Content: output.Key}} },
		"no leading '.'":     func(c *output.Config) { c.Files = []output.File{{Name: ".key", Content: output.Key}} },
		"is there twice":     func(c *output.Config) { c.Files = append(c.Files, c.Files[0]) },
		`is to hold "keys"`:  func(c *output.Config) { c.Files = []output.File{{Name: "key", Content: "keys"}} },
		"no secret is named": func(c *output.Config) { c.Bundle = "" },
		"permissions alone": func(c *output.Config) {
			c.Files = []output.File{{Name: "key", Content: output.Key, Mode: fs.ModeSetuid}}
		},
		"the link is \"a/b\"": func(c *output.Config) { c.Link = "a/b" },
	} {
		cfg := good
		change(&cfg)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := output.Run(ctx, cfg, newRotating(t)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
		}
		cancel()
	}
}

func TestBurstOfChangesIsOneReload(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	source, reloads := newRotating(t), make(chan time.Time, 100)
	const pause = 500 * time.Millisecond
	r := start(t, output.Config{Folder: t.TempDir(), Pause: pause, Reload: func(context.Context, *slog.Logger) error {
		reloads <- time.Now()
		return nil
	}}, source)
	r.await(output.Reloaded)
	for range 10 {
		source.rotate()
		r.await(output.Written)
	}
	r.await(output.Reloaded)
	// On a busy machine ten changes take longer than a pause, and more than two reloads are right.
	for last := <-reloads; len(reloads) > 0; {
		next := <-reloads
		if d := next.Sub(last); d < pause {
			t.Errorf("two reloads within %s", d)
		}
		last = next
	}
}
