package endpoint

import (
	"crypto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func fileOf(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pairOf makes a certificate that ends then, with an intermediate, and its key.
func pairOf(t *testing.T, end time.Time) (certFile, keyFile string) {
	t.Helper()
	chain, key := catest.NewCA(catest.Options{Intermediates: 1}).Pair(time.Until(end), "spiffe://example.org/agent")
	return fileOf(t, chain), fileOf(t, key)
}

// A root that cannot be read must not vanish among others.
func TestRootFileIsReadWholeOrNotAtAll(t *testing.T) {
	root := catest.NewCA(catest.Options{}).Bundle()
	pool, err := ReadRoots(fileOf(t, root.PEM()))
	if err != nil {
		t.Fatal(err)
	}
	if want := root.Pool(); !pool.Equal(want) {
		t.Error("other roots than those of the file")
	}
	for name, text := range map[string]string{
		"none": "", "a broken one": string(root.PEM()) + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "too much": strings.Repeat(" ", 1<<20) + string(root.PEM()),
	} {
		path := fileOf(t, []byte(text))
		if _, err := ReadRoots(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMismatchedOrExpiredPairIsRefused(t *testing.T) {
	cert, key := pairOf(t, time.Now().Add(time.Hour))
	pair, err := ReadPair(cert, key, time.Now())
	if err != nil || len(pair.Certificate) != 2 || !pki.SameKey(pair.Leaf.PublicKey, pair.PrivateKey.(crypto.Signer).Public()) {
		t.Errorf("%v, %v", pair, err)
	}
	_, other := pairOf(t, time.Now().Add(time.Hour))
	broken := fileOf(t, []byte("-----BEGIN PRIVATE KEY-----\nc2VzYW1l\n-----END PRIVATE KEY-----\n"))
	for says, read := range map[string]func() (any, error){
		"is not the key of":   func() (any, error) { return ReadPair(cert, other, time.Now()) },
		"expired at":          func() (any, error) { return ReadPair(cert, key, time.Now().Add(2*time.Hour)) },
		broken:                func() (any, error) { return ReadPair(cert, broken, time.Now()) },
		key + ": it holds":    func() (any, error) { return ReadPair(key, key, time.Now()) },
		cert + "-none":        func() (any, error) { return ReadPair(cert+"-none", key, time.Now()) },
		"stat " + key + "-no": func() (any, error) { return ReadPair(cert, key+"-no", time.Now()) },
	} {
		if _, err := read(); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "c2VzYW1l") {
			t.Errorf("%s: %v", says, err)
		}
	}
}
