package ondemand_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/ondemand/ask"
	limits "github.com/countersign-dev/countersign/sdk/ondemand/budget"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// These tests are about what users of Caddy's on-demand TLS have reported.

// Scanners take names from certificate transparency logs and put labels before them (caddy#6188): each
// certificate that is issued then makes more.
func TestScannerThatPutsLabelsBeforeNamesGetsNoCertificate(t *testing.T) {
	labels := []string{"www", "mail", "dev", "api", "admin", "vpn", "test", "autodiscover"}
	for title, pattern := range map[string]string{"one label": "*.shop.example.org", "any depth": "**.shop.example.org"} {
		t.Run(title, func(t *testing.T) {
			decider := &asker{say: func(_ context.Context, name string) (bool, error) {
				return strings.Count(name, ".") == 3, nil
			}}
			bubble(t, func(e *engine, c *ondemand.Config) {
				memory := ask.Remember(decider, ask.Limits{})
				e.t.Cleanup(memory.Close)
				c.Rules[0].Ask, c.Rules[0].Patterns = memory, patterns(pattern)
			}, func(e *engine) {
				began := time.Now()
				for i := range 20 {
					name := fmt.Sprintf("n%d.shop.example.org", i)
					if took := e.reach(name); took > time.Second {
						t.Errorf("%s took %s", name, took)
					}
					for range 3 { // names of scans become longer with each
						for _, label := range labels {
							e.subscribe(label + "." + name).stop()
							e.subscribe(label + "." + name)
						}
						name = labels[i%len(labels)] + "." + name
					}
				}
				after(10 * time.Second)
				e.orders(20)
				if rate := float64(decider.calls.Load()) / time.Since(began).Seconds(); rate > 50 {
					t.Errorf("%.0f questions a second", rate)
				}
				if s := e.rule(); s.Names != 20 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// A subscription has no client address (caddy#7733). Where a mapper puts the client into the name, a rule
// for each client has a budget of its own.
func TestRuleForEachClientHasItsOwnBudget(t *testing.T) {
	ledger := limits.NewLedger(nil)
	bubble(t, func(_ *engine, c *ondemand.Config) {
		c.Rules = nil
		for _, client := range []string{"one", "two"} {
			r := shop()
			r.Name, r.Patterns = client, patterns("*."+client+".example.org")
			r.Budget = ledger.Budget(client, limits.Limits{New: limits.Rate{Count: 5, Every: time.Minute}})
			c.Rules = append(c.Rules, r)
		}
	}, func(e *engine) {
		for i := range 100 {
			e.subscribe(fmt.Sprintf("n%d.one.example.org", i))
		}
		synctest.Wait()
		e.subscribe("a.two.example.org")
		e.has("a.two.example.org")
		e.orders(6)
	})
}

// The DNS records of a customer that left lead elsewhere, so each order fails (certmagic#246).
func TestNameWhoseDNSHasMovedAwayIsNotOrderedForEver(t *testing.T) {
	for title, again := range map[string]time.Duration{"no client": 0, "a client each 12 s": 12 * time.Second} {
		t.Run(title, func(t *testing.T) {
			bubble(t, func(e *engine, c *ondemand.Config) {
				stored(e, c)
				c.Rules[0].Budget = limits.NewLedger(e.now).Budget("shop", limits.Limits{})
			}, func(e *engine) {
				e.subscribe(aShop) // Envoy keeps it
				e.has(aShop)
				e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Denied, "the domain leads elsewhere")})
				week := func() int {
					before := len(e.ca.Requests())
					for end := time.Now().Add(7 * 24 * time.Hour); time.Now().Before(end); after(max(again, time.Hour/2)) {
						if again > 0 {
							for range int(time.Hour / 2 / again) {
								e.subscribe(aShop).stop()
							}
						}
					}
					return len(e.ca.Requests()) - before
				}
				first, second := week(), week()
				if first > 60 || second > 40 || again == 0 && second > 0 {
					t.Errorf("%d and %d orders in a week", first, second)
				}
			})
		})
	}
}

func TestReloadWhileNamesAreAddedFailsNoHandshake(t *testing.T) {
	const n = 200
	decider := &asker{say: answers(true, nil)}
	bubble(t, func(e *engine, c *ondemand.Config) { stored(e, c); c.Rules[0].Ask = decider }, func(e *engine) {
		e.ca.delay.Store(int64(300 * time.Millisecond))
		decider.set(func(ctx context.Context, _ string) (bool, error) {
			time.Sleep(100 * time.Millisecond)
			return true, ctx.Err()
		})
		var all []*handshake
		for i := range n {
			all = append(all, e.subscribe(fmt.Sprintf("n%d.shop.example.org", i)))
			time.Sleep(20 * time.Millisecond)
			rule := e.config.Rules[0]
			rule.InFlight, rule.Names = 16+i%2, 1000+i // the pool is another one each time
			if err := e.Apply([]ondemand.Rule{rule, ruleOf(i)}); err != nil {
				t.Fatal(err)
			}
		}
		after(5 * time.Second)
		for _, h := range all {
			e.has(h.name)
		}
		e.orders(n)
		e.refused(map[ondemand.Refusal]uint64{})
	})
}

// A CA that revokes certificates says so by its renewal advice, whose window is over:
// docs/decisions/0022-names-and-advice.md.
func TestRevokedCertificatesAreReplacedSoonAfterTheAdvice(t *testing.T) {
	const n = 300
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Queue = n }, func(e *engine) {
		e.ca.advises.Store(true)
		e.ca.calm.Store(true)
		revoked := map[string]*secret.Item{}
		for i := range n {
			name := fmt.Sprintf("n%d.shop.example.org", i)
			e.subscribe(name)
			revoked[name] = e.has(name)
		}
		after(4 * time.Hour) // earlier advice waits until then
		e.ca.calm.Store(false)
		e.ca.delay.Store(int64(time.Second))
		for end := time.Now().Add(6 * time.Hour); len(revoked) > 0 && time.Now().Before(end); after(5 * time.Second) {
			for name, old := range revoked {
				advised, ok := e.ca.advised.Load(string(old.Chain))
				switch replaced := e.has(name).Fingerprint != old.Fingerprint; {
				case replaced && !ok:
					t.Errorf("%s was replaced without advice", name)
				case replaced:
					delete(revoked, name)
				case ok && time.Since(advised.(time.Time)) > time.Minute:
					t.Fatalf("%s is not replaced %s after the advice: %+v", name, time.Since(advised.(time.Time)), e.rule())
				}
			}
		}
		if most := e.ca.most.Load(); most > 16 || len(revoked) > 0 {
			t.Errorf("%d orders at once; %d certificates are left", most, len(revoked))
		}
	})
}

func TestRemovalNotifiesAtOnce(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.delay.Store(int64(time.Second))
		h := e.subscribe(aShop)
		began := time.Now()
		if err := e.Apply([]ondemand.Rule{ruleOf(1)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if h.notices.Load() == 0 || time.Since(began) > 0 {
			t.Errorf("%d notices after %s", h.notices.Load(), time.Since(began))
		}
		e.answer(aShop, secret.ErrUnknown)
		if again := e.subscribe(aShop); again.err == nil {
			t.Error("a new subscriber is not refused")
		}
	})
}
