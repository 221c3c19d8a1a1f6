package tlsconfig_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

func TestSecretFaultsAreReported(t *testing.T) {
	for name, wrong := range map[string]struct {
		spoil func(*party)
		want  []error
		text  string
	}{
		"closed": {
			func(p *party) { p.Fail(secret.ErrClosed) }, []error{tlsconfig.ErrNotHeld, secret.ErrClosed},
			`a secret that TLS needs is not held: expected the key-pair "default", seen none (secret source is closed)`,
		},
		"not ready": {
			func(p *party) { p.Empty("default") }, []error{tlsconfig.ErrNotHeld, secret.ErrNotReady},
			"secret is not ready",
		},
		"empty bundle": {
			func(p *party) { p.trust(nil) }, []error{tlsconfig.ErrEmptyBundle},
			`the trust bundle is empty: expected one root at least in the trust-bundle "ROOTCA", seen none in version none`,
		},
		"vanished roots": {
			func(p *party) { p.Empty("ROOTCA") }, []error{tlsconfig.ErrRootsGone, secret.ErrNotReady},
			`are gone: expected the trust-bundle "ROOTCA", seen none any more, version `,
		},
		"no PEM": {
			func(p *party) {
				p.Put(&secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Version: "x", Roots: []byte("\x1bx")})
			},
			[]error{tlsconfig.ErrMalformed}, "no PEM block",
		},
		"key-mismatch": {
			func(p *party) {
				other := *p.issue(catest.NewCA(catest.Options{}))
				other.Key = p.Items()["default"].Key
				p.Put(&other)
			}, []error{tlsconfig.ErrMalformed}, "its key is not that of its certificate",
		},
		"no-key": {
			func(p *party) {
				other := *p.issue(catest.NewCA(catest.Options{}))
				other.Key = other.Chain
				p.Put(&other)
			}, []error{tlsconfig.ErrMalformed}, "not a private key",
		},
		"another kind": {
			func(p *party) { p.Put(bundleNamed("default", catest.NewCA(catest.Options{}).Bundle())) },
			[]error{tlsconfig.ErrMalformed}, "it is a trust-bundle",
		},
	} {
		t.Run(name, func(t *testing.T) {
			authority := catest.NewCA(catest.Options{})
			web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
			s, c := server(t, web.options()), client(t, app.options())
			if m := meet(t, s, c); m.err() != nil {
				t.Fatal(m.err())
			}
			wrong.spoil(web)
			check(t, meet(t, s, c).serverErr, wrong.want, wrong.text)
		})
	}
}

func check(t *testing.T, err error, want []error, text string) {
	t.Helper()
	if _, typed := errors.AsType[*tlsconfig.Error](err); !typed {
		t.Errorf("%T is not typed", err)
	}
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%v is not %v", err, w)
		}
	}
	if err == nil || !strings.Contains(err.Error(), text) || strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Errorf("got %q, want %q", err, text)
	}
}
