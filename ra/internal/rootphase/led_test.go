package rootphase

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Whatever happens, and whoever writes last: what is out is in the leader's bundle, and nobody gives out
// below a root that the leader does not trust, unless the authority leaves no choice.
func TestRandomEventsOfSeveralKeepRootRules(t *testing.T) {
	all := roots(t, 4)
	rapid.Check(t, func(r *rapid.T) {
		conf := Config{Wait: 10 * time.Minute, Outstanding: true, Confirmed: true, Unplanned: 10 * time.Minute}
		led := conf
		led.Led = true
		now, text, recorded := begin, []byte(nil), map[string]bool{}
		members := []*Machine{New(conf), New(led), New(led)}
		sync := func(i int) {
			next, err := members[i].Sync(text, now)
			if err != nil {
				r.Fatal(err)
			}
			text = next
			for _, print := range trustedIn(r, text) {
				recorded[print] = true
			}
		}
		for i, m := range members {
			if err := m.Told(set(all[0]), now); err != nil {
				r.Fatal(err)
			}
			sync(i)
		}
		ends, early := map[string]time.Time{}, false
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			i := rapid.IntRange(0, 2).Draw(r, "who")
			m := members[i]
			switch rapid.IntRange(0, 6).Draw(r, "what") {
			case 0:
				some := rapid.SliceOfNDistinct(rapid.IntRange(0, 3), 1, 3, rapid.ID).Draw(r, "roots")
				var told []*x509.Certificate
				for _, n := range some {
					told = append(told, all[n])
				}
				_ = m.Told(set(told...), now)
			case 1:
				members[0].Wrote(members[0].Bundle(), now)
			case 2: // what is given out is recorded at once
				for _, cert := range m.Trusted().Certificates() {
					m.Issued(cert, now.Add(time.Hour), m.Bundle(), now)
					ends[pki.Fingerprint(cert)] = now.Add(time.Hour)
				}
				sync(i)
				sync(0)
			case 3:
				early = true
				m.Early(all[rapid.IntRange(0, 3).Draw(r, "signs")], now)
			case 4:
				sync(i)
			case 5:
				now = now.Add(time.Duration(rapid.IntRange(1, 50).Draw(r, "minutes")) * time.Minute)
				m.Step(now)
			case 6: // it starts again
				again, err := Restore(m.conf, text, now)
				if err != nil {
					r.Fatal(err)
				}
				members[i] = again
			}
			for print, end := range ends {
				if end.After(now) && !contains(members[0].Bundle().Fingerprints(), print) {
					r.Fatalf("a root is gone below which a certificate lives until %s", end)
				}
			}
			for _, m := range members[1:] {
				for _, print := range m.Trusted().Fingerprints() {
					if !early && !recorded[print] {
						r.Fatal("one who is led trusts a root that the record never did")
					}
				}
				if m.Trusted().Len() == 0 {
					r.Fatal("no root is trusted any more")
				}
			}
		}
	})
}

// trustedIn are the roots that a record says are trusted.
func trustedIn(r *rapid.T, text []byte) (all []string) {
	_, recorded, err := parse(text)
	if err != nil {
		r.Fatal(err)
	}
	for print, one := range recorded {
		if !one.trusted.IsZero() {
			all = append(all, print)
		}
	}
	return all
}

func led(t *testing.T, leader *Machine, now time.Time) *Machine {
	t.Helper()
	conf := leader.conf
	conf.Led = true
	m := New(conf)
	if _, err := m.Sync(leader.Record(), now); err != nil {
		t.Fatal(err)
	}
	return m
}

// A reply was on its way while the root was announced.
func TestHolderWithoutTheNewRootIsWaitedFor(t *testing.T) {
	r := roots(t, 2)
	m := New(Config{Wait: time.Minute, Outstanding: true, Unplanned: time.Hour})
	told(t, m, begin, r[0])
	told(t, m, begin, r...)
	m.Issued(r[0], at(time.Hour), set(r[0]), begin)
	m.Issued(r[0], at(2*time.Hour), set(r...), begin)
	m.Step(at(time.Hour - 1))
	want(t, "trusted while a certificate lives that came without it", m.Trusted(), r[0])
	m.Step(at(time.Hour))
	want(t, "trusted after", m.Trusted(), r...)
}

func TestRecordIsLeftAsItIsIfThereIsNothingToAdd(t *testing.T) {
	r := roots(t, 1)
	leader := New(bundles)
	told(t, leader, begin, r...)
	leader.Issued(r[0], at(24*time.Hour), set(r...), begin)
	text := leader.Record()
	m := led(t, leader, begin)
	if next, err := m.Sync(text, at(time.Minute)); err != nil || string(next) != string(text) {
		t.Errorf("%v: %s", err, next)
	}
	m.Issued(r[0], at(26*time.Hour), set(r...), begin)
	next, err := m.Sync(text, at(time.Minute))
	if err != nil || string(next) == string(text) {
		t.Fatalf("a later end is not added: %v", err)
	}
	if again, err := leader.Sync(next, at(time.Minute)); err != nil || string(again) != string(next) {
		t.Errorf("the leader drops it: %v\n%s\n%s", err, again, next)
	}
}

func TestDamagedCommonRecordChangesNothing(t *testing.T) {
	r := roots(t, 2)
	leader := New(bundles)
	told(t, leader, begin, r[0])
	m := led(t, leader, begin)
	for name, text := range map[string]string{"malformed": "{", "an older version": `{"version":-1}`, "a newer version": `{"version":2,"roots":7}`, "without roots": `{"version":1,"roots":[]}`, "empty": ""} {
		next, _ := m.Sync([]byte(text), begin)
		if string(next) != text {
			t.Errorf("%s: one who is led writes %s", name, next)
		}
		want(t, name, m.Trusted(), r[0])
		written := string(leader.Record())
		if name == "a newer version" {
			written = text
		}
		if next, _ := leader.Sync([]byte(text), begin); string(next) != written {
			t.Errorf("%s: the leader writes %s", name, next)
		}
	}
	told(t, m, begin, r...)
	m.Step(at(500 * time.Hour))
	want(t, "trusted without the leader", m.Trusted(), r[0])
}

// A replica whose replies bring others all the time fills no record.
func TestFloodOfReportedRootsIsBounded(t *testing.T) {
	all := roots(t, maxRoots+10)
	leader := New(bundles)
	told(t, leader, begin, all[0])
	text := leader.Record()
	for n := range 3 {
		m := led(t, leader, begin)
		if err := m.Replied(set(all[1+40*n:min(41+40*n, len(all))]...), begin, begin); err != nil {
			t.Fatal(err)
		}
		text, _ = m.Sync(text, begin)
	}
	if n := strings.Count(string(text), `"reported":true`); n != maxRoots-1 {
		t.Errorf("%d roots are reported", n)
	}
	if _, err := leader.Sync(text, begin); err != nil || leader.Bundle().Len() != maxRoots {
		t.Error(err, leader.Bundle().Len())
	}
}
