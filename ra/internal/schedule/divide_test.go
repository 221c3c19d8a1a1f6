package schedule

import (
	"testing"
	"time"
)

func (a *authority) calls(during time.Duration) int {
	begun := len(a.at)
	a.until(a.now.Add(during))
	return len(a.at) - begun
}

func TestShareBoundsRateAndBurst(t *testing.T) {
	a := newAuthority(Limits{Rate: 10, Burst: 10, InFlight: 100, Length: 100000, Reserve: 5})
	a.Divide(0, a.now)
	a.add("a", 10000)
	if n := a.calls(time.Hour); n != 0 {
		t.Fatalf("%d calls without a share", n)
	}
	a.Divide(0.5, a.now)
	if n := a.calls(10 * time.Second); n < 48 || n > 50 {
		t.Errorf("%d calls in ten seconds with half, and nothing saved", n)
	}
	a.Divide(1, a.now)
	if n := a.calls(10 * time.Second); n < 99 || n > 101 {
		t.Errorf("%d calls in ten seconds with all", n)
	}
	if s := a.Status(); s.Rate != 10 || s.Share != 1 {
		t.Errorf("got %+v", s)
	}
}

func TestWhatWasSavedDoesNotGrowWithTheShare(t *testing.T) {
	a := newAuthority(Limits{Rate: 10, Burst: 10, InFlight: 100, Length: 100000, Reserve: 5})
	a.Divide(0.3, a.now)
	a.until(begin.Add(time.Minute)) // three are saved
	a.Divide(1, a.now)
	a.add("a", 100)
	if n := a.calls(0); n != 3 {
		t.Errorf("a burst of %d, three were saved", n)
	}
	a.until(a.now.Add(time.Minute)) // ten are
	a.Divide(0, a.now)
	a.Divide(1, a.now)
	a.add("a", 100)
	if n := a.calls(0); n != 0 {
		t.Errorf("a burst of %d by one that had nothing", n)
	}
}

// What the authority has refused counts for each share.
func TestShareKeepsWhatRefusalsTaught(t *testing.T) {
	r := newRate(Limits{Rate: 10, Burst: 10})
	r.wait(begin)
	r.limited(begin, begin.Add(time.Second), 0)
	r.divide(0.5, begin.Add(time.Second))
	if got := r.allowed(); got != 4.5 {
		t.Errorf("the rate is %v", got)
	}
}

func TestSmallShareLetsOneCallOut(t *testing.T) {
	a := newAuthority(Limits{Rate: 1, Burst: 1, InFlight: 100, Length: 100, Reserve: 5})
	a.Divide(0.1, a.now)
	a.add("a", 10)
	if n := a.calls(50 * time.Second); n < 5 || n > 6 {
		t.Errorf("%d calls in 50 seconds at one in ten", n)
	}
}

func TestDemandIsWhatWaitsAndWhatWentOut(t *testing.T) {
	a := newAuthority(Limits{Rate: 4, Burst: 4, InFlight: 100, Length: 100000, Reserve: 5})
	if d := a.Demand(a.now); d != 0 {
		t.Errorf("an idle queue asks for %v", d)
	}
	a.add("a", 1000)
	if d := a.Demand(a.now); d < 99 || d > 101 {
		t.Errorf("a thousand that wait ask for %v", d)
	}
	a.until(begin.Add(time.Hour))
	for range 300 {
		a.add("a", 1)
		a.until(a.now.Add(time.Second / 2))
	}
	if d := a.Demand(a.now); d < 1.8 || d > 2.3 {
		t.Errorf("two calls a second ask for %v", d)
	}
	a.until(a.now.Add(10 * time.Minute))
	if d := a.Demand(a.now); d > 0.001 {
		t.Errorf("ten quiet minutes later %v is asked for", d)
	}
}
