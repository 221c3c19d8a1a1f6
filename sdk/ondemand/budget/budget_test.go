package budget_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/ondemand/budget"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var begin = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// clock is the time of a test.
type clock struct{ time.Time }

func (c *clock) now() time.Time       { return c.Time }
func (c *clock) pass(d time.Duration) { c.Time = c.Add(d) }
func newLedger() (*budget.Ledger, *clock) {
	c := &clock{begin}
	return budget.NewLedger(c.now), c
}

func take(b *budget.Budget, c *clock, name string) error {
	return b.Take(c.Time, name, []string{name}, "account")
}

// taken returns how many of many orders for a name are allowed at once.
func taken(b *budget.Budget, c *clock, names func(i int) string) (n int) {
	for i := range 1000 {
		if take(b, c, names(i)) == nil {
			n++
		}
	}
	return n
}

func rate(t *testing.T, text string) budget.Rate {
	t.Helper()
	r, err := budget.ParseRate(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRateIsReadAndWritten(t *testing.T) {
	for text, every := range map[string]time.Duration{"10/min": time.Minute, "1/s": time.Second, "300/h": time.Hour, "5/day": 24 * time.Hour, "50/week": 168 * time.Hour} {
		r := rate(t, text)
		if r.Every != every || r.String() != text {
			t.Errorf("%s: %+v, %s", text, r, r)
		}
	}
	for _, text := range []string{"", "10", "/min", "0/min", "-1/min", "x/min", "10/year", "10/", "9999999999999999999/s", "2000000/s", "1/min/s", "1.5/h"} {
		if r, err := budget.ParseRate(text); err == nil || !strings.Contains(err.Error(), "such as 10/min") {
			t.Errorf("%q: %v, %v", text, r, err)
		}
	}
}

func TestEachLimitIsKeptAndRefills(t *testing.T) {
	same := func(int) string { return "a.example.org" }
	below := func(i int) string { return fmt.Sprintf("%d.example.org", i) }
	suffix := func(i int) string { return fmt.Sprintf("%d.example.co.uk", i) }
	others := func(i int) string { return fmt.Sprintf("example%d.co.uk", i) }
	for title, c := range map[string]struct {
		limits budget.Limits
		names  func(i int) string
		first  int // at once
		after  time.Duration
		then   int // after that time
		says   string
	}{
		"new":                      {budget.Limits{New: budget.Rate{Count: 10, Every: time.Minute, Burst: 20}}, others, 20, time.Minute, 10, "the rule is used up: 10/min"},
		"account":                  {budget.Limits{Account: rate(t, "300/h")}, others, 300, 12 * time.Second, 1, "the account is used up: 300/h"},
		"registered domain":        {budget.Limits{PerRegisteredDomain: rate(t, "50/week")}, below, 50, 168 * time.Hour / 50, 1, "domain example.org is used up: 50/week"},
		"domain of a long suffix":  {budget.Limits{PerRegisteredDomain: rate(t, "50/week")}, suffix, 50, 84 * time.Hour, 25, "domain example.co.uk"},
		"other registered domains": {budget.Limits{PerRegisteredDomain: rate(t, "1/week")}, others, 1000, 0, 0, ""},
		"exact set":                {budget.Limits{PerExactSet: rate(t, "5/week")}, same, 5, 168 * time.Hour / 5, 1, "the same names is used up: 5/week"},
		"none":                     {budget.Limits{}, same, 1000, 0, 1000, ""},
	} {
		ledger, now := newLedger()
		b := ledger.Budget("rule", c.limits)
		if n := taken(b, now, c.names); n != c.first {
			t.Errorf("%s: %d orders at once, want %d", title, n, c.first)
		}
		err := take(b, now, c.names(0))
		switch {
		case c.says == "":
			continue
		case err == nil || !strings.Contains(err.Error(), c.says) || ca.ReasonFor(err) != ca.RateLimited:
			t.Errorf("%s: %v", title, err)
		}
		wait := ca.RetryAfter(err)
		now.pass(wait - time.Second)
		if wait <= time.Second || take(b, now, c.names(0)) == nil {
			t.Errorf("%s: an order is allowed before %s", title, wait)
		}
		now.pass(c.after - wait + time.Second)
		if n := taken(b, now, c.names); n != c.then {
			t.Errorf("%s: %d orders after %s, want %d", title, n, c.after, c.then)
		}
	}
}

func TestRefusedOrderSpendsNothing(t *testing.T) {
	ledger, now := newLedger()
	b := ledger.Budget("rule", budget.Limits{New: rate(t, "100/h"), PerRegisteredDomain: rate(t, "2/week")})
	taken(b, now, func(int) string { return "a.example.org" })
	if left := b.Left(now.Time); left != 98 {
		t.Errorf("%d are left, want 98", left)
	}
	if n := taken(b, now, func(i int) string { return fmt.Sprintf("example%d.com", i) }); n != 98 {
		t.Errorf("%d orders of others, want 98", n)
	}
	if left := b.Left(now.Time); left != 0 {
		t.Errorf("%d are left", left)
	}
	if left := ledger.Budget("unlimited", budget.Limits{}).Left(now.Time); left != -1 {
		t.Errorf("%d are left without a limit", left)
	}
}

func TestOrderThatIsNotSentIsGivenBack(t *testing.T) {
	l, c := newLedger()
	b := l.Budget("shop", budget.Limits{New: rate(t, "1/h"), Account: rate(t, "1/h"), PerRegisteredDomain: rate(t, "1/week"), PerExactSet: rate(t, "1/week")})
	for range 3 {
		if err := take(b, c, "a.example.org"); err != nil {
			t.Fatal(err)
		}
		b.Refund(c.Time, "a.example.org", []string{"a.example.org"}, "account")
	}
	b.Refund(c.Time, "a.example.org", []string{"a.example.org"}, "account")
	if n := taken(b, c, func(int) string { return "a.example.org" }); n != 1 {
		t.Errorf("%d orders are allowed, want 1", n)
	}
}

func TestRulesOfOneAccountShareItsLimits(t *testing.T) {
	ledger, now := newLedger()
	limits := budget.Limits{New: rate(t, "10/h"), Account: rate(t, "15/h"), PerRegisteredDomain: rate(t, "12/week")}
	a, b := ledger.Budget("a", limits), ledger.Budget("b", limits)
	name := func(int) string { return "a.example.org" }
	if n, m := taken(a, now, name), taken(b, now, name); n != 10 || m != 2 {
		t.Errorf("%d and %d orders, want 10 and 2", n, m)
	}
	if n := taken(b, now, func(i int) string { return fmt.Sprintf("example%d.com", i) }); n != 3 {
		t.Errorf("%d orders of the account, want 3", n)
	}
	if err := b.Take(now.Time, "a.example.org", []string{"a.example.org"}, "another account"); err != nil {
		t.Error(err)
	}
}

func TestFailingNameIsOrderedSeldom(t *testing.T) {
	ledger, now := newLedger()
	b := ledger.Budget("rule", budget.Limits{New: rate(t, "1000/s")})
	orders := func(during time.Duration, every time.Duration) (n int) {
		for end := now.Add(during); now.Before(end); now.pass(every) {
			if take(b, now, "a.example.org") == nil {
				b.Failed("a.example.org")
				n++
			}
		}
		return n
	}
	if n := orders(time.Hour, time.Second/5); n > 5 || n < 3 {
		t.Errorf("%d orders in an hour", n)
	}
	if n := orders(10*24*time.Hour, time.Minute); n > 10*5+10 {
		t.Errorf("%d orders in 10 days", n)
	}
	if err := take(b, now, "b.example.org"); err != nil {
		t.Errorf("another name: %v", err)
	}
	for range 1000 {
		b.Failed("a.example.org")
	}
	if err := take(b, now, "a.example.org"); err == nil || ca.RetryAfter(err) > 5*time.Hour {
		t.Errorf("after many failures: %v after %s", err, ca.RetryAfter(err))
	}
}

func TestCountsOutliveRestart(t *testing.T) {
	limits := budget.Limits{PerRegisteredDomain: rate(t, "50/week"), PerExactSet: rate(t, "5/week")}
	ledger, now := newLedger()
	b := ledger.Budget("rule", limits)
	taken(b, now, func(i int) string { return fmt.Sprintf("%d.example.org", i) })
	b.Failed("failing.example.com")
	b.Failed("failing.example.com")
	state, err := ledger.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[time.Duration]int{0: 0, 84 * time.Hour: 25, 1000 * time.Hour: 50, -1000 * time.Hour: 0} {
		c := &clock{begin.Add(offset)}
		again := budget.NewLedger(c.now)
		if err := again.UnmarshalBinary(state); err != nil {
			t.Fatal(err)
		}
		b := again.Budget("rule", limits)
		if n := taken(b, c, func(i int) string { return fmt.Sprintf("new%d.example.org", i) }); n != want {
			t.Errorf("after %s: %d orders, want %d", offset, n, want)
		}
		if err := take(b, c, "failing.example.com"); (err == nil) != (offset > 0) {
			t.Errorf("after %s: the name that fails: %v", offset, err)
		}
	}
}

// What was spent is not known after a state that cannot be read, so it may have been everything.
func TestLostCountsBeginAsUsedUp(t *testing.T) {
	limits := budget.Limits{New: budget.Rate{Count: 10, Every: time.Minute, Burst: 20}, PerRegisteredDomain: rate(t, "50/week")}
	below := func(i int) string { return fmt.Sprintf("%d.example.org", i) }
	check := func(title string, ledger *budget.Ledger, now *clock, want int) {
		t.Helper()
		if n := taken(ledger.Budget("rule", limits), now, below); n != want {
			t.Errorf("%s: %d orders, want %d", title, n, want)
		}
	}
	ledger, now := newLedger()
	now.pass(1000 * time.Hour)
	ledger.Lose()
	if left := ledger.Budget("rule", limits).Left(now.Time); left != 0 {
		t.Errorf("%d orders are left", left)
	}
	check("at once", ledger, now, 0)
	now.pass(-1000 * time.Hour)
	check("a clock that was ahead", ledger, now, 0)
	now.pass(6 * time.Second)
	if err := take(ledger.Budget("rule", budget.Limits{New: limits.New}), now, "a.example.com"); err != nil {
		t.Error(err)
	}
	now.pass(84 * time.Hour)
	state, err := ledger.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	again := budget.NewLedger(now.now)
	if err := again.UnmarshalBinary(state); err != nil {
		t.Fatal(err)
	}
	check("half a week and a restart later", again, now, 20)
	now.pass(200 * time.Hour)
	check("then", again, now, 20)
}

func TestInvalidStateIsAnErrorAndChangesNothing(t *testing.T) {
	ledger, now := newLedger()
	b := ledger.Budget("rule", budget.Limits{New: rate(t, "1/h")})
	if err := take(b, now, "a.example.org"); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"", "{", `{"version":2}`, `{"version":1,"counters":{"rule":{"a":["x"]}}}`, `{"version":1,"counters":5}`} {
		if err := ledger.UnmarshalBinary([]byte(state)); err == nil || !strings.Contains(err.Error(), "state of the budgets") {
			t.Errorf("%q: %v", state, err)
		}
	}
	if take(b, now, "a.example.org") == nil {
		t.Error("the counts are gone")
	}
	if err := ledger.UnmarshalBinary([]byte(`{"version":1,"counters":{"later":{"a":[1,1]},"rule":{"rule":[1e300,1e300],"b":[-5,-5]}}}`)); err != nil {
		t.Error(err)
	}
	if err := take(b, now, "a.example.org"); err == nil || ca.RetryAfter(err) <= 0 {
		t.Errorf("with a huge count: %v", err)
	}
}

// A stranger who spends once for each of many domains does not reset the one that is used up.
func TestManyDomainsTakeBoundedStateAndResetNone(t *testing.T) {
	ledger, now := newLedger()
	b := ledger.Budget("rule", budget.Limits{PerRegisteredDomain: rate(t, "5/week"), PerExactSet: rate(t, "5/week")})
	taken(b, now, func(int) string { return "a.example.org" })
	for i := range 15_000 {
		name := fmt.Sprintf("%s%d.com", strings.Repeat("a", 40), i)
		if err := take(b, now, name); err != nil {
			t.Fatal(err)
		}
		b.Failed(name)
		now.pass(time.Millisecond)
	}
	if take(b, now, "a.example.org") == nil {
		t.Error("the domain that was used up has a new budget")
	}
	if state, err := ledger.MarshalBinary(); err != nil || len(state) > 3<<20 {
		t.Errorf("the state has %d bytes, %v", len(state), err)
	}
}

// A name has several counters of failures, each with a rate of its own.
func TestManyFailingNamesResetNone(t *testing.T) {
	l, c := newLedger()
	b := l.Budget("shop", budget.Limits{})
	for range 10 {
		b.Failed("a.example.org")
	}
	c.pass(time.Hour)
	for i := range 6000 {
		b.Failed(fmt.Sprintf("n%d.example.net", i))
	}
	if err := take(b, c, "a.example.org"); err == nil {
		t.Error("a name that failed ten times in a day is ordered")
	}
}

func TestChangesAreSavedUntilTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := budget.NewLedger(nil)
		b := ledger.Budget("rule", budget.Limits{New: rate(t, "10/h")})
		var mu sync.Mutex // of those below
		var saves int
		var last []byte
		away := errors.New("the disk is full")
		var fails error
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			ledger.Run(ctx, func(ctx context.Context, state []byte) error {
				mu.Lock()
				defer mu.Unlock()
				saves++
				if fails == nil {
					last = state
				}
				return errors.Join(fails, ctx.Err())
			}, slog.New(slog.DiscardHandler))
		}()
		setFails := func(err error) { mu.Lock(); fails = err; mu.Unlock() }
		step := func(want int) {
			t.Helper()
			time.Sleep(10*time.Second + time.Millisecond) // after the tick
			mu.Lock()
			defer mu.Unlock()
			if saves != want {
				t.Errorf("%d saves, want %d", saves, want)
			}
		}
		take := func() {
			if err := b.Take(time.Now(), "a.example.org", nil, ""); err != nil {
				t.Error(err)
			}
		}
		step(0)
		take()
		step(1)
		step(1)
		setFails(away)
		take()
		step(11)
		setFails(nil)
		step(12)
		take()
		cancel()
		<-done
		again := budget.NewLedger(nil)
		if err := again.UnmarshalBinary(last); err != nil {
			t.Fatal(err)
		}
		if left := again.Budget("rule", budget.Limits{New: rate(t, "10/h")}).Left(time.Now()); left != 7 {
			t.Errorf("%d are left, want 7", left)
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":1,"counters":{"rule":{"rule":[1,1764233333]}}}`))
	f.Fuzz(func(t *testing.T, state []byte) {
		ledger, now := newLedger()
		if ledger.UnmarshalBinary(state) != nil {
			return
		}
		err := take(ledger.Budget("rule", budget.Limits{New: budget.Rate{Count: 10, Every: time.Minute}}), now, "a.example.org")
		if err != nil && ca.RetryAfter(err) <= 0 {
			t.Error(err)
		}
	})
}
