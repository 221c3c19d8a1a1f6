package secret_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	head, payload, mac = "eyJhbGciOiJFUzI1NiJ9", "eyJzdWIiOiJ4In0xMjM0", "c2lnbmF0dXJlIG9mIHRoZSB0b2tlbg"
	jwtToken           = ca.Token(head + "." + payload + "." + mac)
)

// quoting is a client in this process that names the token it does not accept.
type quoting struct {
	*catest.CA
	quote func(token string) string
}

func (q quoting) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	_, _ = q.CA.CSRSign(ctx, req) // counted
	return ca.Certificate{}, ca.Errorf(ca.Unauthenticated, "not accepted: %s", q.quote(req.Token.Reveal()))
}

func TestTokenQuotedByClientReachesNoEventOrLog(t *testing.T) {
	for name, quote := range map[string]func(string) string{
		"whole":     func(token string) string { return token },
		"payload":   func(token string) string { return strings.Split(token, ".")[1] },
		"signature": func(token string) string { return strings.Split(token, ".")[2] },
		"beginning": func(token string) string { return token[:30] + "..." },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, func(c *secret.Config) {
					c.Authorities[0].Token = tokens(jwtToken)
					c.Authorities[0].Client = quoting{c.Authorities[0].Client.(*catest.CA), quote}
				})
				e.notReady("default")
				e.Kick("test") // the refusal is remembered, and reported again
				after(10 * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				_, err := e.Get(ctx, agent, "default")
				shown := fmt.Sprint(err, e.Status()[0].Failure, e.Status()[1].Failure, e.logged())
				for _, event := range e.events {
					shown += fmt.Sprintf("%+v", event.Failure)
				}
				hasNoToken(t, shown)
				if !strings.Contains(shown, "not accepted: (secret)") {
					t.Errorf("the reason is not shown: %s", shown)
				}
			})
		})
	}
}

func TestTokenQuotedBySignerIsNotInItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client = quoting{c.Authorities[0].Client.(*catest.CA), func(token string) string { return token[:min(40, len(token))] }}
		})
		s := e.Signer("test")
		defer s.Close()
		order, err := secret.NewOrder(secret.Spec{Name: "x", Identity: identity(t, "spiffe://example.org/x")})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Sign(t.Context(), order, jwtToken, nil)
		hasNoToken(t, fmt.Sprint(err))
	})
}

func hasNoToken(t *testing.T, shown string) {
	t.Helper()
	for _, piece := range []string{head, payload, mac} {
		if strings.Contains(shown, piece) {
			t.Errorf("%s of the token is shown: %s", piece, shown)
		}
	}
}
