package istioca_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/ra"
)

// ownToken is a token of one of the machines that share an account.
func (m *mesh) ownToken(of int) string {
	return m.issuer.token(m.t, machine, func(_, claims map[string]any) { claims["jti"] = of })
}

// asksWith asks with a token, and returns the error.
func (m *mesh) asksWith(token string) error {
	m.t.Helper()
	conn := m.dial("192.0.2.9")
	defer conn.Close()
	_, err := m.as(conn, token, "").ask(wish{identity: machine, key: newKey()})
	return err
}

// The machines of one WorkloadGroup share its service account.
func TestMachinesOfOneAccountAllHoldCertificates(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		renewing(&register{})(m, p)
		p.engine.Budget = ra.Budget{}
	}, func(t *testing.T, m *mesh) {
		count := 150 // of which the record is written whole each time: 500 take 11 s of a core
		if testing.Short() {
			count = 30 // beyond the budget of one holder, 10
		}
		began := time.Now()
		machines := make([]*holder, count)
		for n := range machines {
			machines[n] = m.takes(m.ownToken(n), wish{identity: machine})
		}
		for _, at := range []time.Duration{12 * time.Hour, 24 * time.Hour} {
			time.Sleep(time.Until(began.Add(at - time.Hour)))
			for n, h := range machines {
				machines[n] = m.renews(h)
				_ = h.conn.Close()
			}
			time.Sleep(time.Until(began.Add(at)))
			for n, h := range machines {
				if !h.leaf.NotAfter.After(time.Now()) {
					t.Errorf("after %s the certificate of machine %d has ended", at, n)
				}
			}
		}
	})
}

// An account with any number of tokens has one budget for all of them, and leaves machines that renew
// theirs.
func TestTokensShareTheBudgetOfTheirAccount(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		renewing(&register{})(m, p)
		p.engine.Budget = ra.Budget{Holder: 2, HolderEvery: time.Hour}
		for i := range p.rules {
			p.rules[i].Holders = 3
		}
	}, func(t *testing.T, m *mesh) {
		h := m.takes(m.ownToken(0), wish{identity: machine})
		if err := m.asksWith(m.ownToken(0)); err != nil {
			t.Error(err)
		}
		// A token whose claims were signed once more is the same token.
		if err := m.asksWith(m.ownToken(0)); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("the budget of one token: %v", err)
		}
		got := 0
		for n := range 20 {
			err := m.asksWith(m.ownToken(1 + n))
			if err == nil {
				got++
			} else if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("token %d: %v", n, err)
			}
		}
		if got != 4 {
			t.Errorf("%d further tokens got certificates, 4 were left", got)
		}
		m.renews(m.renews(h))
	})
}
