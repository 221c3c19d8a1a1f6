// Package budget (experimental) bounds how many certificates are ordered for names that strangers
// choose, as CAs bound them: for a rule, an account, a registered domain, an exact set of names, and a
// name whose orders fail. Make a [Ledger] for the program and a [Budget] of it for each rule. [Ledger.Run]
// saves what was spent, so that it counts over restarts.
package budget

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Limits are those of one rule. Rules with the same account share what is counted for its registered
// domains, sets and names, so they should have the same limits for those.
type Limits struct {
	// New is for the orders of the rule, and Account for those of all rules with the account.
	// Default: none.
	New, Account Rate
	// PerRegisteredDomain is for the names below one entry of the public suffix list. Default: none.
	PerRegisteredDomain Rate
	// PerExactSet is for certificates with exactly the same names. Default: none.
	PerExactSet Rate
	// Failed are for the failures of one name; each of them has to allow another order. Default:
	// [DefaultFailed].
	Failed []Rate
}

// DefaultFailed allows 2 failed orders of a name at once and 3 in the next hour, but no more than 5 a
// day in the long run: a name whose DNS has moved away is not ordered for ever. It is below the limits
// of public CAs (5 failures an hour).
var DefaultFailed = []Rate{{Count: 3, Every: time.Hour, Burst: 2}, {Count: 5, Every: 24 * time.Hour, Burst: 10}}

// Budget bounds the orders of one rule. It is safe for concurrent use.
type Budget struct {
	ledger *Ledger
	rule   string
	limits Limits
}

// Budget returns the budget of a rule, whose name identifies it over restarts.
func (l *Ledger) Budget(rule string, limits Limits) *Budget {
	if limits.Failed == nil {
		limits.Failed = DefaultFailed
	}
	return &Budget{l, rule, limits}
}

// count is one of the counters that an order is subject to.
type count struct {
	rate  Rate
	spend bool // with the order; else with its failure
	kind  kind
	key   string
	of    string // in words
}

// counts returns what an order is subject to.
func (b *Budget) counts(name string, exactSet []string, account string) []count {
	domain := domainOf(name)
	all := []count{
		{b.limits.New, true, rules, b.rule, "the rule"},
		{b.limits.Account, true, accounts, account, "the account"},
		{b.limits.PerRegisteredDomain, true, domains, join(account, domain), "the registered domain " + domain},
		{b.limits.PerExactSet, true, sets, join(account, setOf(exactSet)), "the same names"},
	}
	return slices.DeleteFunc(append(all, b.failures(name)...), func(c count) bool { return c.rate.unlimited() })
}

// failures returns the counters of a name's failures. A rule has its own, as it may have another CA.
func (b *Budget) failures(name string) []count {
	var all []count
	for i, rate := range b.limits.Failed {
		all = append(all, count{rate, false, failed, join(b.rule, strconv.Itoa(i), name), "failed orders of the name"})
	}
	return all
}

// Take takes the order of a certificate for name, as sdk/ondemand/names folds it, from the budget;
// exactSet are all names in the certificate, account is the one at the CA. now is the wall clock.
// If a limit is reached, Take takes nothing: the error has the reason [ca.RateLimited] and a RetryAfter.
func (b *Budget) Take(now time.Time, name string, exactSet []string, account string) error {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	counts := b.counts(name, exactSet, account)
	var wait time.Duration
	var limit count
	for _, c := range counts {
		if w := c.rate.wait(b.ledger.look(c), now); w > wait {
			wait, limit = w, c
		}
	}
	if wait > 0 {
		err := ca.Errorf(ca.RateLimited, "the budget of %s is used up: %s are allowed", limit.of, limit.rate)
		err.RetryAfter = wait
		return err
	}
	for _, c := range counts {
		if c.spend {
			b.ledger.at(c, now).Spend()
		}
	}
	return nil
}

// Refund gives back what Take took for an order that was not sent.
func (b *Budget) Refund(now time.Time, name string, exactSet []string, account string) {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	for _, c := range b.counts(name, exactSet, account) {
		if c.spend {
			bucket := b.ledger.at(c, now)
			bucket.Gain(now, c.rate.perSecond())
			bucket.Refund()
		}
	}
}

// Failed records that an order for name failed.
func (b *Budget) Failed(name string) {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	now := b.ledger.now()
	for _, c := range b.failures(name) {
		if c.rate.unlimited() {
			continue
		}
		bucket := b.ledger.at(c, now)
		bucket.Gain(now, c.rate.perSecond())
		bucket.Spent = min(bucket.Spent+1, c.rate.burst()) // repeats of one order, too: one more later is enough
	}
}

// Left returns how many orders Limits.New allows now; -1 without a limit.
func (b *Budget) Left(now time.Time) int {
	if b.limits.New.unlimited() {
		return -1
	}
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	bucket := *b.ledger.look(count{rate: b.limits.New, spend: true, kind: rules, key: b.rule})
	bucket.Gain(now, b.limits.New.perSecond())
	return max(0, int(b.limits.New.burst()-bucket.Spent+1e-9))
}

// domainOf returns the domain that was registered; a public suffix is one itself.
func domainOf(name string) string {
	if domain, err := publicsuffix.EffectiveTLDPlusOne(name); err == nil {
		return domain
	}
	return name
}

func setOf(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	return join(slices.Compact(names)...)
}

// join returns a short key for some texts: a name may have 253 bytes, and the ledger is saved.
func join(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(sum, "%d %s", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16])
}
