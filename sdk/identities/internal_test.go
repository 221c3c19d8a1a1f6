package identities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// open is a Set that takes every token for its owner's name, beside a Manager that
// holds more than everybody may have.
func open(t *testing.T) *Set {
	t.Helper()
	own, err := pki.NewIdentity("spiffe://example.org/agent", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	from := []string{"test"}
	m, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: catest.NewCA(catest.Options{})}},
		Secrets: []secret.Spec{
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: from}, {Name: "others", Kind: secret.TrustBundle, Authorities: from},
			{Name: "agent", Kind: secret.KeyPair, Authorities: from, Identity: own},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	claimed := func(token ca.Token) (Claim, error) {
		owner, _, _ := strings.Cut(token.Reveal(), ".")
		return Claim{SPIFFEID: "spiffe://example.org/" + owner}, nil
	}
	c, err := New(Config{Manager: m, Certificate: secret.Spec{Authorities: from}, Identify: Identify{Claimed: claimed}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); m.Close() })
	return c
}

func TestOtherSecretsOfManagerAreHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		caller, err := c.Join(context.Background(), secret.Caller{}, "web")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for name, want := range map[string]error{"default": nil, "ROOTCA": nil, "others": secret.ErrUnknown, "agent": secret.ErrUnknown} {
			if _, err := c.Peek(caller, name); !errors.Is(err, want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestTokenTextIsKeptWhileStreamHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		var callers [2]secret.Caller
		for i := range callers {
			var err error
			if callers[i], err = c.Join(context.Background(), secret.Caller{}, "web"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		cred := c.credentials[fingerprintOf("web")]
		c.Leave(callers[0])
		if cred.token != "web" {
			t.Error("it is gone while a stream has it")
		}
		c.Leave(callers[1])
		c.Leave(callers[1])
		if cred.token != "" || cred.sessions != 0 {
			t.Errorf("%d sessions are left", cred.sessions)
		}
	})
}

func TestRememberedTokensAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		c.cfg.Limits.Identities = 10
		for i := range 500 {
			caller, err := c.Join(context.Background(), secret.Caller{}, ca.Token(fmt.Sprint("web.", i)))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			c.Leave(caller)
		}
		if n := len(c.credentials); n > 50 {
			t.Errorf("%d tokens are known", n)
		}
	})
}
