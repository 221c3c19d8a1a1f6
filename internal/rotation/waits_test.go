package rotation

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

var errReply = &pki.CheckError{Check: "names", Detail: "as planned"}

const anHour = time.Hour

func TestEachFailureHasItsWait(t *testing.T) {
	for name, c := range map[string]struct {
		err           error
		left, without time.Duration
		first, most   time.Duration // give or take a quarter
	}{
		"a fault":                            {ca.ErrUnavailable, 24 * anHour, 0, time.Second, time.Minute},
		"a fault, nothing held":              {ca.ErrInternal, 0, 0, time.Second, 10 * time.Second},
		"a fault, nothing held for long":     {ca.ErrDeadline, 0, 11 * time.Minute, time.Second, 100 * time.Second},
		"a refusal":                          {ca.ErrDenied, 24 * anHour, 0, time.Minute, 10 * time.Minute},
		"a refusal, nothing held":            {ca.ErrUnauthenticated, 0, 0, time.Second, time.Minute},
		"a refusal, nothing held for long":   {ca.ErrInvalid, 0, 11 * time.Minute, time.Second, 10 * time.Minute},
		"a wrong reply":                      {errReply, 24 * anHour, 0, time.Minute, 10 * time.Minute},
		"a wrong reply, nothing held":        {errReply, 0, 0, 10 * time.Second, 10 * time.Minute},
		"no such ability":                    {ca.ErrUnimplemented, 240 * anHour, 0, 10 * time.Minute, 10 * time.Minute},
		"no such ability, nothing held":      {ca.ErrUnimplemented, 0, 0, 10 * time.Minute, 10 * time.Minute},
		"a refusal near the end":             {ca.ErrDenied, 80 * time.Second, 0, 7 * time.Second, 8 * time.Second},
		"a wrong reply just before the end":  {errReply, time.Second, 0, 850 * time.Millisecond, time.Second},
		"a refusal just before the very end": {ca.ErrDenied, time.Millisecond, 0, 850 * time.Millisecond, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var w Waits
			want := c.first
			for i := range 20 {
				got := w.After(c.err, aDay, c.left, c.without)
				if got < want*74/100 || got > min(want*5/4, c.most) {
					t.Fatalf("wait %d is %s, want some %s, %s at most", i+1, got, want, c.most)
				}
				want = min(2*want, c.most)
			}
			w.Reset()
			if got := w.After(c.err, aDay, c.left, c.without); got > c.first*5/4 {
				t.Errorf("after a reset it is %s", got)
			}
		})
	}
}

// The authority's own time counts as it is: repeats of one pending request are no load on it.
func TestPendingRequestIsRepeatedAsAsked(t *testing.T) {
	for said, want := range map[time.Duration]time.Duration{
		0: 10 * time.Second, time.Millisecond: time.Second, 30 * time.Second: 30 * time.Second, 24 * anHour: 10 * time.Minute,
	} {
		var w Waits
		for i := range 20 {
			got := w.After(&ca.Error{Reason: ca.Pending, RetryAfter: said}, aDay, 0, 0)
			if said == 0 && i > 0 {
				want = time.Minute // 10 s, doubled up to that
			}
			if got > want*5/4 || got < want*3/4 && said > 0 || got < 7*time.Second && said == 0 {
				t.Fatalf("asked for %s, wait %d is %s", said, i+1, got)
			}
		}
	}
	var w Waits
	if got := w.After(&ca.Error{Reason: ca.Pending, RetryAfter: anHour}, aDay, 10*time.Minute, 0); got > time.Minute {
		t.Errorf("with 10 minutes left it waits %s", got)
	}
}

func TestRateLimitWaitCoversWholeRange(t *testing.T) {
	short, long := 0, 0
	for range 1000 {
		var w Waits
		switch got := w.After(ca.ErrRateLimited, aDay, 0, 0); {
		case got < time.Second || got > 10*time.Minute+time.Second:
			t.Fatalf("got %s", got)
		case got < 150*time.Second:
			short++
		case got > 450*time.Second:
			long++
		}
	}
	if short < 150 || long < 150 {
		t.Errorf("%d waits are short, %d long, of 1000", short, long)
	}
}

func TestRetryAfterIsSpreadMoreEachTime(t *testing.T) {
	for n, most := range []time.Duration{40, 80, 200, 560} {
		longest := time.Duration(0)
		for range 1000 {
			var w Waits
			for range n {
				w.After(told(20*time.Second), aDay, 0, 0)
			}
			got := w.After(told(20*time.Second), aDay, 0, 0)
			if got < 20*time.Second {
				t.Fatalf("it comes back after %s", got)
			}
			longest = max(longest, got)
		}
		if most *= time.Second; longest > most || longest < most*9/10 {
			t.Errorf("after %d refusals the longest wait is %s, want nearly %s", n+1, longest, most)
		}
	}
}

func told(wait time.Duration) error { return &ca.Error{Reason: ca.RateLimited, RetryAfter: wait} }

func TestRetryAfterIsCutOnce(t *testing.T) {
	var w Waits
	now, left := aDay, 30*time.Minute
	first := w.After(told(10*time.Minute), now, left, 0)
	if first > 3*time.Minute || first < 2*time.Minute {
		t.Fatalf("the first wait is %s of the %s that are left", first, left)
	}
	second := w.After(told(10*time.Minute), now.Add(first), left-first, 0)
	if end := first + second; end < 10*time.Minute || end > 20*time.Minute {
		t.Fatalf("it is asked again after %s, within the time that it gave", end)
	}
	if third := w.After(told(10*time.Minute), now.Add(first+second), 10*time.Minute, 0); third > time.Minute {
		t.Errorf("with 10 minutes left it waits for %s", third)
	}
}
