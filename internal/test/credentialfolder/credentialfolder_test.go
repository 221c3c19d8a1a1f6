package credentialfolder_test

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/credentialfolder"
)

const id = "spiffe://example.org/web"

// folder is one in good order, below the root.
func folder(t *testing.T, root *certtest.Pair) map[string]string {
	t.Helper()
	leaf := root.Leaf(t, time.Hour, id)
	return map[string]string{
		"credential-bundle.private-key.pem":   string(leaf.KeyPEM(t)) + string(leaf.PEM()),
		"example.org.spiffe-trust-bundle.pem": string(root.PEM()),
	}
}

func in(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

func TestFolderInGoodOrderIsRead(t *testing.T) {
	root, partner := certtest.Root(t), certtest.Root(t)
	files := folder(t, root)
	got, err := credentialfolder.Load(in(files))
	if err != nil || got.ID != id || len(got.Chain) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	peer := []*x509.Certificate{partner.Leaf(t, time.Hour, "spiffe://partner.example/db").Cert}
	if _, err := credentialfolder.Verify(in(files), peer); err == nil || !strings.Contains(err.Error(), "not federated") {
		t.Errorf("without federation: %v", err)
	}
	files["partner.example.spiffe-trust-bundle.pem"] = string(partner.PEM())
	if got, err := credentialfolder.Verify(in(files), peer); err != nil || got != "spiffe://partner.example/db" {
		t.Errorf("%q, %v", got, err)
	}
	impostor := []*x509.Certificate{partner.Leaf(t, time.Hour, id).Cert}
	if _, err := credentialfolder.Verify(in(files), impostor); err == nil {
		t.Error("a partner's CA vouches for our own trust domain")
	}
}

func TestFolderThatBreaksTheStandardIsRefused(t *testing.T) {
	const own, roots = "credential-bundle.private-key.pem", "example.org.spiffe-trust-bundle.pem"
	root := certtest.Root(t)
	other := root.Leaf(t, time.Hour, id)
	for name, harm := range map[string]func(f map[string]string){
		"text between": func(f map[string]string) {
			f[own] = strings.Replace(f[own], "-----BEGIN CERT", "leaf:\n-----BEGIN CERT", 1)
		},
		"text behind":     func(f map[string]string) { f[roots] += "\n" },
		"headers":         func(f map[string]string) { f[roots] = headed(f[roots]) },
		"another type":    func(f map[string]string) { f[roots] += string(other.KeyPEM(t)) },
		"an empty bundle": func(f map[string]string) { f[roots] = "" },
		"no bundle":       func(f map[string]string) { delete(f, roots) },
		"chain alone":     func(f map[string]string) { f[own] = string(other.PEM()) },
		"another's key": func(f map[string]string) {
			_, chain, _ := strings.Cut(f[own], "-----BEGIN CERT")
			f[own] = string(other.KeyPEM(t)) + "-----BEGIN CERT" + chain
		},
		"with its root":     func(f map[string]string) { f[own] += string(root.PEM()) },
		"not in order":      func(f map[string]string) { f[own] += string(other.PEM()) },
		"another's root":    func(f map[string]string) { f[roots] = string(certtest.Root(t).PEM()) },
		"the appendix name": func(f map[string]string) { f["credential-bundle.pem"] = f[own]; delete(f, own) },
	} {
		files := folder(t, root)
		harm(files)
		if got, err := credentialfolder.Load(in(files)); err == nil {
			t.Errorf("%s: %s", name, got.ID)
		}
	}
}

func headed(text string) string {
	block, _ := pem.Decode([]byte(text))
	block.Headers = map[string]string{"Domain": "example.org"}
	return string(pem.EncodeToMemory(block))
}
