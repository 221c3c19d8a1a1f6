package identities_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/identities"
)

// quotingVerifier quotes a part of the token that it rejects.
type quotingVerifier struct{}

func (quotingVerifier) Verify(_ context.Context, token ca.Token) (identities.Claim, error) {
	return identities.Claim{}, ca.Errorf(ca.Unauthenticated, "not accepted: %s", half(token))
}

// half returns the part of a token that a careless error quotes.
func half(token ca.Token) string { return token.Reveal()[len(token)/2:] }

func TestTokenFragmentReachesNoLogOrFailure(t *testing.T) {
	forged := ca.Token("forged:web:" + strings.Repeat("0123456789", 5))
	for name, change := range map[string]func(*identities.Config){
		"verifier": func(c *identities.Config) { c.Identify = identities.Identify{Verifier: quotingVerifier{}} },
		"claims": func(c *identities.Config) {
			c.Identify.Claimed = func(token ca.Token) (identities.Claim, error) {
				return identities.Claim{}, fmt.Errorf("not accepted: %s", half(token))
			}
		},
		"exchange": func(c *identities.Config) {
			c.Exchange.Token = func(_ context.Context, token ca.Token) (ca.Token, error) {
				return "", ca.Errorf(ca.Denied, "not accepted: %s", half(token))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(_ *engine, c *identities.Config) { change(c) }, func(e *engine) {
				s, err := e.tryJoin(forged)
				if err == nil {
					err = s.nothing()
				}
				shown := fmt.Sprint(err, e.logged())
				if f := e.Counts().Failure; f != nil {
					shown += f.Text
				}
				if strings.Contains(shown, half(forged)) || !strings.Contains(shown, "not accepted: (secret)") {
					t.Errorf("it is shown: %s", shown)
				}
			})
		})
	}
}
