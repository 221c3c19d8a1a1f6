package rotation

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

var aDay = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestRenewalsSpreadOverJitter(t *testing.T) {
	var early, late int
	for range 1000 {
		switch at := Renewal(0.5, 0.1, aDay, aDay.Add(100*time.Hour)).Sub(aDay); {
		case at < 40*time.Hour || at > 60*time.Hour:
			t.Fatalf("renewal is due after %s", at)
		case at < 45*time.Hour:
			early++
		case at > 55*time.Hour:
			late++
		}
	}
	if early < 150 || late < 150 {
		t.Errorf("%d are early, %d late, of 1000", early, late)
	}
}

// A CA may issue without an end (RFC 5280, section 4.1.2.5). A Duration holds 292 years, and the
// product with a ratio of 1 left it.
func TestRenewalOfCertificateWithoutEnd(t *testing.T) {
	never := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	for range 100 {
		if at := Renewal(0.01, 0.1, aDay, never); at.Before(aDay.AddDate(80, 0, 0)) {
			t.Fatalf("it is renewed at %s", at)
		}
	}
}

// held returns a machine that holds a certificate of an hour.
func held() *Machine {
	m := &Machine{}
	m.Want(true)
	m.Hold(Term{Begins: aDay, Renew: aDay.Add(30 * time.Minute), Ends: aDay.Add(time.Hour)})
	return m
}

func at(d time.Duration) Time { return Time{aDay.Add(d), aDay.Add(d)} }

func TestBroughtForwardRotationIsTriedOnce(t *testing.T) {
	m := held()
	m.BringForward(aDay.Add(time.Minute))
	if m.Due(at(59*time.Second)) || !m.Due(at(time.Minute)) || m.Needed(at(time.Minute)) {
		t.Fatal("it is not due when it was brought forward to")
	}
	m.Begin(at(time.Minute))
	m.Postponed()
	if do := m.Step(at(time.Minute)); do.Ask || do.Wake != 29*time.Minute {
		t.Errorf("after it was postponed: %+v", do)
	}
}

func TestRepeatedRootLossBacksOff(t *testing.T) {
	m, now := held(), time.Duration(0)
	var waits []time.Duration
	for range 9 {
		wait := m.RootLoss(at(now), 0)
		waits = append(waits, wait)
		now += wait
		if !m.Due(at(now)) || wait > 0 && m.Due(at(now-1)) {
			t.Fatalf("it is not due %s after the loss", wait)
		}
		m.Hold(Term{Begins: aDay, Renew: aDay.Add(30 * time.Minute), Ends: aDay.Add(time.Hour)})
	}
	if waits[0] != 0 || waits[1] != time.Second || waits[2] != 2*time.Second || waits[8] != calm {
		t.Errorf("the waits are %v", waits)
	}
	if wait := m.RootLoss(at(now+2*calm), 0); wait != 0 {
		t.Errorf("after a calm time it waits for %s", wait)
	}
}

func TestFailureAfterKickRetriesAtOnce(t *testing.T) {
	m := &Machine{}
	m.Want(true)
	m.Begin(at(0))
	m.Kick()
	if wait := m.Failed(at(0), errReply); wait != 0 || !m.Due(at(0)) {
		t.Errorf("the wait is %s", wait)
	}
	m.Begin(at(0))
	if wait := m.Failed(at(0), errReply); wait < 7*time.Second {
		t.Errorf("the next wait is %s", wait)
	}
}

// Refusals and wrong replies from renewal to the end do not make the workload wait longer without a
// certificate than one that starts: decision 21.
func TestCountsStartAnewWhenCertificateEnds(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		most time.Duration
	}{
		"refused":         {ca.ErrDenied, 1250 * time.Millisecond},
		"away":            {ca.ErrUnavailable, 1250 * time.Millisecond},
		"wrong replies":   {errReply, 12500 * time.Millisecond},
		"unauthenticated": {ca.ErrUnauthenticated, 1250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			m, now := held(), 30*time.Minute
			for now <= time.Hour {
				m.Begin(at(now))
				now += m.Failed(at(now), c.err)
			}
			if late := now - time.Hour; late > time.Second {
				t.Errorf("the first attempt without a certificate comes %s after its end", late)
			}
			m.Begin(at(now))
			if wait := m.Failed(at(now), c.err); wait > c.most {
				t.Errorf("the second comes %s later, want %s at most", wait, c.most)
			}
		})
	}
}
