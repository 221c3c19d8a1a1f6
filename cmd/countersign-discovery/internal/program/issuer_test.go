package program

import (
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/oidctest"
)

// issuerIn writes the roots of an issuer into a folder, and returns its authenticator.
func issuerIn(t *testing.T, i *oidctest.Issuer, dir string) string {
	t.Helper()
	write(t, filepath.Join(dir, "issuer.pem"), string(i.Root()))
	return "{kind: jwt, issuer: '" + i.URL + "', audiences: [discovery], trust_domain: example.org, clusters: [far], root_file: DIR/issuer.pem}"
}
