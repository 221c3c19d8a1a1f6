package rotation

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// advisable returns a machine that has held a certificate of a day since aDay, by an
// authority that gives advice.
func advisable() *Machine {
	m := &Machine{}
	m.Want(true)
	m.Hold(Term{Begins: aDay.Add(-time.Hour), Renew: aDay.Add(12 * time.Hour), Ends: aDay.Add(24 * time.Hour)})
	m.Advisable(soFar(0), aDay)
	return m
}

// soFar is a moment so long after aDay.
func soFar(d time.Duration) Time { return Time{aDay.Add(d), aDay.Add(d)} }

// window is advice to renew so long after aDay.
func window(from, to time.Duration) ca.RenewalInfo {
	return ca.RenewalInfo{Start: aDay.Add(from), End: aDay.Add(to)}
}

func TestRenewalIsDrawnFromTheWindowOnce(t *testing.T) {
	drawn := map[time.Duration]bool{}
	for range 100 {
		m := advisable()
		renew, moved := m.Advised(soFar(0), window(2*time.Hour+30*time.Minute, 4*time.Hour))
		if in := renew.Sub(aDay); !moved || in < 150*time.Minute || in > 4*time.Hour {
			t.Fatalf("renewal after %s, moved %t", in, moved)
		}
		if again, moved := m.Advised(soFar(time.Hour), window(2*time.Hour+30*time.Minute, 4*time.Hour)); moved || again != renew {
			t.Fatalf("the same window moves the renewal from %s to %s", renew, again)
		}
		drawn[renew.Sub(aDay).Round(10*time.Minute)] = true
	}
	if len(drawn) < 5 {
		t.Errorf("100 renewals are at %v", drawn)
	}
}

func TestAdviceIsKeptWithinTheLife(t *testing.T) {
	const tenth = 24 * time.Hour / 10
	for name, test := range map[string]struct {
		info     ca.RenewalInfo
		now      time.Duration
		from, to time.Duration // of the renewal
	}{
		"revoked-at-half-life":      {window(-2*time.Hour, -time.Hour), 10 * time.Hour, 10 * time.Hour, 10*time.Hour + overdue},
		"begun-before":              {window(9*time.Hour, 10*time.Hour+time.Second), 10 * time.Hour, 10 * time.Hour, 10*time.Hour + rush},
		"past-for-a-new-one":        {window(-2*time.Hour, -time.Hour), time.Minute, tenth, tenth + rush},
		"before-its-first-tenth":    {window(0, time.Minute), time.Minute, tenth, tenth + rush},
		"after-its-end":             {window(48*time.Hour, 49*time.Hour), 0, 9 * tenth, 9 * tenth},
		"from-the-beginning-of-all": {ca.RenewalInfo{End: aDay.Add(-time.Second)}, 10 * time.Hour, 10 * time.Hour, 10*time.Hour + overdue},
		"without-end":               {ca.RenewalInfo{Start: aDay.Add(20 * time.Hour), End: aDay.AddDate(5000, 0, 0)}, 0, 20 * time.Hour, 9 * tenth},
	} {
		for range 20 {
			renew, moved := advisable().Advised(soFar(test.now), test.info)
			if in := renew.Sub(aDay); !moved || in < test.from || in > test.to {
				t.Errorf("%s: renewal after %s, moved %t; want %s to %s", name, in, moved, test.from, test.to)
			}
		}
	}
}

func TestRepeatedNowMovesNothingLater(t *testing.T) {
	for range 50 {
		m := advisable()
		first, _ := m.Advised(soFar(10*time.Hour), window(-2*time.Hour, -time.Hour))
		again, moved := m.Advised(soFar(10*time.Hour+time.Second), window(-3*time.Hour, -time.Hour))
		if again.After(first) || moved == again.Equal(first) {
			t.Fatalf("from %s to %s, moved %t", first, again, moved)
		}
	}
}

func TestWhatIsDueStaysDue(t *testing.T) {
	m := advisable()
	m.RenewAt(aDay.Add(time.Hour))
	if _, moved := m.Advised(soFar(time.Hour), window(20*time.Hour, 21*time.Hour)); moved || !m.Due(soFar(time.Hour)) {
		t.Error("advice put off a renewal that is due")
	}
}

// next returns when the machine asks for advice again, in steps of a minute.
func next(t *testing.T, m *Machine, from time.Duration) time.Duration {
	t.Helper()
	for d := from; d < from+30*time.Hour; d += time.Minute {
		if m.Step(soFar(d)).Consult {
			return d - from
		}
	}
	return -1
}

func TestQuestionsAreBoundedAndSpread(t *testing.T) {
	long := func() *Machine {
		m := advisable()
		m.Hold(Term{Begins: aDay, Renew: aDay.Add(300 * time.Hour), Ends: aDay.Add(600 * time.Hour)})
		m.Advisable(soFar(0), aDay)
		return m
	}
	if wait := next(t, long(), 0); wait < 0 || wait > time.Minute {
		t.Errorf("the first question comes after %s", wait)
	}
	for asked, want := range map[time.Duration]time.Duration{
		0: 6 * time.Hour, time.Second: time.Minute, -time.Hour: time.Minute, time.Hour: time.Hour, 1000 * time.Hour: 24 * time.Hour,
	} {
		m, info := long(), window(250*time.Hour, 260*time.Hour)
		info.RetryAfter = asked
		m.Consult()
		if do := m.Step(soFar(time.Hour)); do.Consult {
			t.Fatal("a second question is in flight")
		}
		m.Advised(soFar(0), info)
		if wait := next(t, m, 0); wait < want-time.Minute || wait > want+want/10+time.Minute {
			t.Errorf("with advice of %s, it asks again after %s", asked, wait)
		}
	}
}

func TestFailedQuestionLeavesTheRenewal(t *testing.T) {
	m, last := advisable(), time.Duration(0)
	for range 3 {
		m.Consult()
		m.Unadvised(soFar(0), ca.ErrUnavailable)
		wait := next(t, m, 0)
		if wait <= last || wait > 7*time.Hour {
			t.Errorf("the next question comes after %s, the one before after %s", wait, last)
		}
		last = wait
	}
	m.Unadvised(soFar(0), ca.ErrUnimplemented)
	if wait := next(t, m, 0); wait >= 0 {
		t.Errorf("an authority without advice is asked again after %s", wait)
	}
	if held, _ := m.Held(); held.Renew != aDay.Add(12*time.Hour) || !m.Due(soFar(12*time.Hour)) {
		t.Errorf("renewal at %s", held.Renew)
	}
}

// A wall clock that is set, or a suspend, must not make the machine ask for ever.
func TestStepSleepsUntilTheNextQuestion(t *testing.T) {
	m := advisable()
	m.Consult()
	m.Advised(soFar(0), window(8*time.Hour, 9*time.Hour))
	if wake := m.Step(soFar(0)).Wake; wake < 5*time.Hour || wake > 7*time.Hour {
		t.Errorf("it wakes after %s", wake)
	}
}

// An authority that always advises "now" gets ten requests in a life of a day, not one for each
// question.
func TestLyingAdviceIsBounded(t *testing.T) {
	m := advisable()
	requests := 0
	for d := time.Duration(0); d < 24*time.Hour; d += time.Minute {
		do := m.Step(soFar(d))
		if do.Consult {
			m.Consult()
			lie := window(-2*time.Hour, -time.Hour)
			lie.Start = lie.Start.Add(d) // another one each time
			lie.RetryAfter = time.Second
			m.Advised(soFar(d), lie)
		}
		if do.Ask {
			requests++
			m.Begin(soFar(d))
			m.Issued(Term{Begins: aDay.Add(d), Renew: aDay.Add(d + 12*time.Hour), Ends: aDay.Add(d + 24*time.Hour)})
			if m.Step(soFar(d)).Install {
				m.Advisable(soFar(d), aDay.Add(d))
			}
		}
	}
	if requests < 5 || requests > 10 {
		t.Errorf("%d requests in a day", requests)
	}
}
