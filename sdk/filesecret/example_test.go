package filesecret_test

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// A server in a pod that mounts a SPIFFE credential folder. The certificate and the roots follow
// the files.
func Example_credentialFolder() {
	folder := os.Getenv("SPIFFE_CREDENTIAL_FOLDER")
	if folder == "" {
		folder = exampleFolder()
		defer os.RemoveAll(folder)
	}
	files, err := filesecret.New(filesecret.Config{CredentialFolder: folder})
	if err != nil {
		panic(err)
	}
	defer files.Close()
	server, err := tlsconfig.Server(tlsconfig.Options{
		Source: files, Certificate: "default", Roots: "ROOTCA", Peer: tlsconfig.TrustDomain("example.org"),
	})
	if err != nil {
		panic(err)
	}
	presented, err := server.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		panic(err)
	}
	fmt.Println(presented.Leaf.URIs[0])
	// Output: spiffe://example.org/web
}

// exampleFolder is what a kubelet or an agent writes.
func exampleFolder() string {
	folder, err := os.MkdirTemp("", "spiffe")
	if err != nil {
		panic(err)
	}
	authority := catest.NewCA(catest.Options{})
	chain, key := authority.Pair(time.Hour, "spiffe://example.org/web")
	for name, content := range map[string][]byte{
		filesecret.CredentialBundle:               slices.Concat(key, chain),
		filesecret.TrustBundleFile("example.org"): authority.Bundle().PEM(),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			panic(err)
		}
	}
	return folder
}
