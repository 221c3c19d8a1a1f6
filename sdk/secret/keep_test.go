package secret_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// orders is a Manager of roots alone, whose authority may need a token.
func orders(t *testing.T, client ca.Client, change func(*secret.Authority)) (*secret.Manager, *secret.Signer) {
	t.Helper()
	a := secret.Authority{Name: "test", Client: client}
	if change != nil {
		change(&a)
	}
	m, err := secret.New(secret.Config{
		Authorities: []secret.Authority{a},
		Secrets:     []secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := m.Signer("test")
	t.Cleanup(func() { s.Close(); m.Close() })
	return m, s
}

func specOf(name string) secret.Spec {
	return secret.Spec{Name: name, Kind: secret.KeyPair, Authorities: []string{"test"}, Identity: pki.Identity{DNSNames: []string{name}}, TTL: time.Hour}
}

func anyNames(pki.Identity) error { return nil }

func TestRecordRestoresWhatWasKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := orders(t, catest.NewCA(catest.Options{}), nil)
		spec := specOf("a.example.org")
		sent, err := secret.NewOrder(spec)
		if err != nil {
			t.Fatal(err)
		}
		item, err := s.Obtain(t.Context(), sent, anyNames)
		if err != nil {
			t.Fatal(err)
		}
		next, err := secret.NewOrder(spec)
		if err != nil {
			t.Fatal(err)
		}
		record, err := secret.Keep(spec, item, next)
		if err != nil || strings.Contains(record.String(), "PRIVATE") {
			t.Fatal(err, record)
		}
		got, order, err := m.Restore(spec, record)
		if err != nil || got.Fingerprint != item.Fingerprint || string(got.Key) != string(item.Key) || !got.RenewAt.Equal(item.RenewAt) || order == nil {
			t.Fatalf("%v, %v, %v", got, order, err)
		}
		if _, err := s.Obtain(t.Context(), order, anyNames); err != nil {
			t.Error("the order cannot be sent:", err)
		}
	})
}

func TestRecordThatDoesNotFitIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := orders(t, catest.NewCA(catest.Options{}), nil)
		spec := specOf("a.example.org")
		order, err := secret.NewOrder(spec)
		if err != nil {
			t.Fatal(err)
		}
		item, err := s.Obtain(t.Context(), order, anyNames)
		if err != nil {
			t.Fatal(err)
		}
		good, err := secret.Keep(spec, item, order)
		if err != nil {
			t.Fatal(err)
		}
		other, rsa := specOf("b.example.org"), spec
		rsa.KeyType = "rsa-2048"
		renamed, elsewhere, garbled := good, good, good
		renamed.Identity = other.Identity.String()
		elsewhere.Authority = "other"
		garbled.Content = good.Content[:len(good.Content)-1]
		for name, test := range map[string]struct {
			spec   secret.Spec
			record secret.Record
			order  bool // it is usable still
		}{
			"of another name":          {other, good, false},
			"renamed to that name":     {other, renamed, false},
			"of an unknown authority":  {spec, elsewhere, true},
			"cut off":                  {spec, garbled, false},
			"with another type of key": {rsa, good, false},
		} {
			got, order, err := m.Restore(test.spec, test.record)
			if err == nil || got != nil || (order != nil) != test.order {
				t.Errorf("%s: %v, order %t, %v", name, got, order != nil, err)
			}
			if err != nil && (strings.Contains(err.Error(), "PRIVATE") || ca.ReasonFor(err) == ca.Unavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		time.Sleep(2 * time.Hour)
		if got, _, err := m.Restore(spec, good); err == nil {
			t.Errorf("%v has expired", got)
		}
	})
}

// rootsInReplies is an authority whose roots come with replies alone.
type rootsInReplies struct{ ca.Client }

func TestRecordWaitsForRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := catest.NewCA(catest.Options{})
		_, s := orders(t, authority, nil)
		spec := specOf("a.example.org")
		order, err := secret.NewOrder(spec)
		if err != nil {
			t.Fatal(err)
		}
		item, err := s.Obtain(t.Context(), order, anyNames)
		if err != nil {
			t.Fatal(err)
		}
		record, err := secret.Keep(spec, item, nil)
		if err != nil {
			t.Fatal(err)
		}
		next, _ := orders(t, rootsInReplies{authority}, nil)
		if _, _, err := next.Restore(spec, record); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

// choosy is an authority that accepts one token.
type choosy struct {
	ca.Client
	good ca.Token
}

func (c *choosy) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if req.Token != c.good {
		return ca.Certificate{}, ca.Errorf(ca.Unauthenticated, "token %s is not good", req.Token.Reveal())
	}
	return c.Client.CSRSign(ctx, req)
}

func TestObtainReadsTheTokenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := []ca.Token{"old-token", "new-token", "new-token", "new-token"}
		rejected := 0
		client := &choosy{catest.NewCA(catest.Options{}), "new-token"}
		_, s := orders(t, client, func(a *secret.Authority) {
			a.Token = func(context.Context) (ca.Bearer, error) {
				next := tokens[0]
				tokens = tokens[1:]
				return ca.Bearer{Token: next}, nil
			}
			a.TokenRejected = func(ca.Token) { rejected++ }
		})
		order, err := secret.NewOrder(specOf("a.example.org"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Obtain(t.Context(), order, anyNames); err != nil || rejected != 1 {
			t.Errorf("%v; %d tokens were rejected", err, rejected)
		}
		client.good = "third-token"
		if _, err := s.Obtain(t.Context(), order, anyNames); !errors.Is(err, ca.ErrUnauthenticated) || strings.Contains(err.Error(), "new-token") {
			t.Errorf("%v", err)
		}
		if len(tokens) != 0 {
			t.Errorf("%d tokens were not read", len(tokens))
		}
	})
}
