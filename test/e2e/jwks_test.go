package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/oidctest"
)

// issuer is an OpenID Connect issuer on loopback, over HTTPS.
type issuer struct {
	*oidctest.Issuer
	roots string // the file of its server's root
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{oidctest.Start(t, nil), filepath.Join(t.TempDir(), "roots.pem")}
	writeWhole(t, i.roots, i.Root())
	return i
}

// anybodysProvider returns the entry of an authority that looks at no token.
func anybodysProvider(t *testing.T) map[string]any {
	t.Helper()
	dir := t.TempDir()
	writeCA(t, dir, "root of all")
	return map[string]any{"name": "file", "sha256": pinOf(t, filepath.Join(binaries(t), "countersign-provider-file")), "settings": map[string]any{"dir": dir}}
}

func TestIssuerKeysIdentifyTokens(t *testing.T) {
	t.Parallel()
	i := startIssuer(t)
	a := startWorkloads(t, map[string]any{"workloads": map[string]any{
		"verified_by": "jwks", "jwks": map[string]any{"issuer": i.URL, "audiences": []string{"countersign"}, "root_file": i.roots},
	}, "providers": []map[string]any{anybodysProvider(t)}})
	client := dialSDS(t, a.socket)
	ctx := withDeadline(t)
	for _, name := range []string{"web", "db", "web"} {
		got, err := fetchOwn(ctx, client, i.Token(t, name, "countersign", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if is, err := workloadOf(got); err != nil || is != name {
			t.Errorf("%s has the certificate of %q (%v)", name, is, err)
		}
	}
	for what, token := range map[string]string{
		"forged":               oidctest.New(t, i.URL).Token(t, "web", "countersign", time.Hour),
		"for another audience": i.Token(t, "web", "vault", time.Hour),
		"expired":              i.Token(t, "web", "countersign", -time.Hour),
		"of another issuer":    tokenFor("web", tokenSecret, time.Hour, 0),
	} {
		if got, err := fetchOwn(ctx, client, token); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a token that is %s got %v, %v", what, got, err)
		}
		if strings.Contains(a.log.String(), token) {
			t.Errorf("the log has the token that is %s", what)
		}
	}
	if n := a.workloads(t); n["identities"] != 2.0 || n["requests"] != 2.0 {
		t.Errorf("the status shows %v", n)
	}
}
