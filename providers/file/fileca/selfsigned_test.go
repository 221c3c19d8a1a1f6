package fileca

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestSelfSignedRootIsMadeOnceAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "ca")
	settings := Settings{Dir: dir, SelfSigned: true}
	first := mustOpen(t, settings)
	req, check := web.request(t, "")
	chain := sign(t, first, req, check)
	root := chain.Root
	if len(chain.Certificates) != 1 || root.Subject.CommonName == "" || len(root.Subject.Organization) == 0 {
		t.Errorf("%d certificates in the chain, root %q", len(chain.Certificates), root.Subject)
	}
	if root.PublicKeyAlgorithm != x509.ECDSA || !root.MaxPathLenZero || root.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Errorf("key %s, path length %d, usage %b", root.PublicKeyAlgorithm, root.MaxPathLen, root.KeyUsage)
	}
	if years := time.Until(root.NotAfter) / (365 * 24 * time.Hour); years < 9 {
		t.Errorf("it ends in %d years", years)
	}
	first.Close()
	for range 2 {
		if again := sign(t, mustOpen(t, settings), req, check).Root; !again.Equal(root) {
			t.Error("there is another root after a restart")
		}
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, keyFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, want mode %o", path, info.Mode(), want)
		}
	}
	mustHold(t, dir, certFile, keyFile, rootFile)
}

func TestSelfSignedRootHasKeyTypeOfSetting(t *testing.T) {
	if testing.Short() {
		t.Skip("generates RSA keys")
	}
	for _, kind := range pki.KeyTypes {
		settings := Settings{Dir: t.TempDir(), SelfSigned: true, KeyType: string(kind)}
		if _, err := pki.ParseKeyType(string(kind)); err != nil { // such as ML-DSA with Go 1.26
			if _, refused := Open(t.Context(), settings); !errors.Is(refused, ca.ErrInvalid) || !strings.Contains(refused.Error(), err.Error()) {
				t.Errorf("%s: got %v, want %v", kind, refused, err)
			}
			mustHold(t, settings.Dir)
			continue
		}
		req, check := web.request(t, "")
		if root := sign(t, mustOpen(t, settings), req, check).Root; pki.KeyTypeOf(root.PublicKey) != kind {
			t.Errorf("%s: the root has a key of %s", kind, pki.KeyTypeOf(root.PublicKey))
		}
	}
}

// A key type without a root to make would look as if it were that of the leaves.
func TestKeyTypeNeedsSelfSigned(t *testing.T) {
	for keyType, want := range map[string]string{"ecdsa-p384": "set self_signed", "rsa-1024": "use one of"} {
		if err := (Settings{Dir: "ca", KeyType: keyType}).Validate(); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", keyType, err)
		}
	}
}

// mustHold demands exactly these names.
func mustHold(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

func TestConcurrentStartsMakeOneRoot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	const processes = 6
	var all sync.WaitGroup
	var outs [processes][]byte
	var errs [processes]error
	for i := range processes {
		all.Go(func() { outs[i], errs[i] = itself(t, openSelfSignedOf, dir).CombinedOutput() })
	}
	all.Wait()
	for i := range processes {
		if errs[i] != nil || len(outs[i]) != 64 || !bytes.Equal(outs[i], outs[0]) {
			t.Errorf("process %d: %v, root %q, the first has %q", i, errs[i], outs[i], outs[0])
		}
	}
	mustHold(t, dir, certFile, keyFile, rootFile)
}

func TestInterruptedStartIsFinished(t *testing.T) {
	for name, left := range map[string][]string{
		"while-writing-the-key": {"." + keyFile + ".new"},
		"after-the-key":         {keyFile},
		"after-the-root":        {keyFile, rootFile},
	} {
		t.Run(name, func(t *testing.T) {
			made := filepath.Join(t.TempDir(), "made")
			mustOpen(t, Settings{Dir: made, SelfSigned: true})
			dir := folderOf(t, nil)
			for _, name := range left {
				content, _ := os.ReadFile(filepath.Join(made, name))
				if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := mustOpen(t, Settings{Dir: dir, SelfSigned: true})
			req, check := web.request(t, "")
			sign(t, c, req, check)
			mustHold(t, dir, certFile, keyFile, rootFile)
			for _, kept := range left[:len(left)-1] {
				before, _ := os.ReadFile(filepath.Join(made, kept))
				if after, _ := os.ReadFile(filepath.Join(dir, kept)); !bytes.Equal(before, after) {
					t.Errorf("%s was replaced", kept)
				}
			}
		})
	}
}

func TestExistingCAIsUsedAsItIs(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 1})
	dir := folderOf(t, authority.IstioFiles())
	c := mustOpen(t, Settings{Dir: dir, SelfSigned: true})
	req, check := web.request(t, "")
	if chain := sign(t, c, req, check); !chain.Root.Equal(rootOf(t, authority)) {
		t.Error("another root signs")
	}
	mustHold(t, dir, certFile, keyFile, chainFile, rootFile)
}

func TestForeignPartialCAIsNotCompleted(t *testing.T) {
	good := catest.NewCA(catest.Options{}).IstioFiles()
	for says, files := range map[string]map[string][]byte{
		"has root-cert.pem but neither":    {rootFile: good[rootFile]},
		"ca-key.pem: no such file":         {rootFile: good[rootFile], certFile: good[certFile]},
		"root-cert.pem: no such file":      {keyFile: good[keyFile], certFile: good[certFile]},
		"ca-key.pem: there is no PEM bloc": {keyFile: []byte("hello")},
	} {
		dir := folderOf(t, files)
		_, err := Open(t.Context(), Settings{Dir: dir, SelfSigned: true})
		reason := ca.ErrInvalid
		if strings.HasSuffix(says, "no such file") {
			reason = ca.ErrUnavailable // another process may complete it
		}
		if !errors.Is(err, reason) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v, want %q", err, says)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != len(files) {
			t.Errorf("%s: %d files are there, %d were", says, len(entries), len(files))
		}
	}
}

func TestFolderWritableByOthersGetsNoRoot(t *testing.T) {
	for _, mode := range []os.FileMode{0o770, 0o707, 0o1777} {
		dir := folderOf(t, nil)
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), Settings{Dir: dir, SelfSigned: true})
		if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "use 0700") {
			t.Errorf("mode %o: %v", mode, err)
		}
		mustHold(t, dir)
	}
}

func TestFolderOfOtherUserGetsNoRoot(t *testing.T) {
	dir := "/" // which is root's
	if os.Geteuid() == 0 {
		dir = folderOf(t, nil)
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Open(t.Context(), Settings{Dir: dir, SelfSigned: true})
	if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), dir+" belongs to user") {
		t.Errorf("got %v", err)
	}
}

func TestLockedFolderIsUnavailable(t *testing.T) {
	dir := folderOf(t, nil)
	handle, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	if err := lock(t.Context(), handle); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, Settings{Dir: dir, SelfSigned: true}); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
}

func TestKeyIsInNoErrorOrLog(t *testing.T) {
	files := catest.NewCA(catest.Options{}).IstioFiles()
	secret := string(files[keyFile][40:80])
	// A key in each of the other files, and one cut short.
	for _, name := range []string{certFile, chainFile, rootFile} {
		mustNotTell(t, secret, with(files, name, files[keyFile]))
	}
	mustNotTell(t, secret, with(files, keyFile, files[keyFile][:100]))
}

func mustNotTell(t *testing.T, secret string, files map[string][]byte) {
	t.Helper()
	log := newLogged()
	w := looking(t, folderOf(t, catest.NewCA(catest.Options{}).IstioFiles()), log)
	writeFiles(t, w.ca.dir, files)
	w.look()
	if text := log.next(t); strings.Contains(text, secret) {
		t.Error("the log holds the key")
	}
	if _, err := Open(t.Context(), Settings{Dir: w.ca.dir}); err == nil || strings.Contains(err.Error(), secret) {
		t.Error("it was opened, or the error holds the key")
	}
}
