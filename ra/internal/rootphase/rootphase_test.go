package rootphase

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return begin.Add(d) }

// roots are CAs that live for 1000 hours.
func roots(t testing.TB, n int) (certs []*x509.Certificate) {
	for i := range n {
		certs = append(certs, certtest.SelfSigned(t, &x509.Certificate{
			Subject: pkix.Name{CommonName: fmt.Sprint("root ", i)}, NotBefore: begin.Add(-time.Hour), NotAfter: at(1000 * time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}).Cert)
	}
	return certs
}

func set(certs ...*x509.Certificate) *pki.Bundle { return pki.NewBundle(certs...) }

func told(t testing.TB, m *Machine, now time.Time, certs ...*x509.Certificate) {
	t.Helper()
	if err := m.Told(set(certs...), now); err != nil {
		t.Fatal(err)
	}
}

func want(t testing.TB, what string, got *pki.Bundle, certs ...*x509.Certificate) {
	t.Helper()
	if !got.Equal(set(certs...)) {
		t.Errorf("%s: %d roots %.8q, want %d", what, got.Len(), got.Fingerprints(), len(certs))
	}
}

var bundles = Config{Wait: 10 * time.Minute, Confirmed: true, Unplanned: 5 * time.Minute}

func TestFirstRootsAreTrustedAtOnce(t *testing.T) {
	r := roots(t, 2)
	m := New(bundles)
	told(t, m, begin, r...)
	want(t, "trusted", m.Trusted(), r...)
}

func TestNewRootIsTrustedOnceItIsEverywhere(t *testing.T) {
	r := roots(t, 2)
	m := New(bundles)
	told(t, m, begin, r[0])
	m.Issued(r[0], at(24*time.Hour), m.Bundle(), begin)
	told(t, m, at(time.Hour), r[0], r[1])
	want(t, "published", m.Bundle(), r...)
	m.Step(at(9 * time.Hour))
	want(t, "trusted while it is not written", m.Trusted(), r[0])
	m.Wrote(m.Bundle(), at(10*time.Hour))
	if next := m.Step(at(10 * time.Hour)); !next.Equal(at(10*time.Hour + 10*time.Minute)) {
		t.Errorf("next is %s", next)
	}
	m.Step(at(10*time.Hour + 9*time.Minute))
	want(t, "trusted nine minutes after", m.Trusted(), r[0])
	m.Step(at(10*time.Hour + 10*time.Minute))
	want(t, "trusted ten minutes after", m.Trusted(), r...)
}

// Somebody deletes a bundle, or a cluster joins that has an old one.
func TestRootThatIsRemovedAnywhereWaitsAnew(t *testing.T) {
	r := roots(t, 2)
	m := New(bundles)
	told(t, m, begin, r[0])
	told(t, m, at(time.Hour), r...)
	m.Wrote(m.Bundle(), at(time.Hour))
	m.Wrote(set(r[0]), at(time.Hour+9*time.Minute))
	m.Step(at(2 * time.Hour))
	want(t, "trusted while it is not everywhere", m.Trusted(), r[0])
	m.Wrote(m.Bundle(), at(2*time.Hour))
	m.Step(at(2*time.Hour + 9*time.Minute))
	want(t, "trusted nine minutes after it was put back", m.Trusted(), r[0])
	m.Step(at(2*time.Hour + 10*time.Minute))
	want(t, "trusted ten minutes after", m.Trusted(), r...)
	m.Wrote(set(), at(3*time.Hour))
	m.Step(at(3 * time.Hour))
	want(t, "trusted, and removed once certificates below them were out", m.Trusted(), r...)
}

func TestRootInRepliesAloneWaitsForAllCertificates(t *testing.T) {
	r := roots(t, 2)
	m := New(Config{Wait: 10 * time.Minute, Outstanding: true, Unplanned: time.Hour})
	told(t, m, begin, r[0])
	m.Issued(r[0], at(24*time.Hour), m.Bundle(), begin)
	told(t, m, at(time.Hour), r...)
	m.Issued(r[0], at(30*time.Hour), m.Bundle(), begin) // it brings the new root along
	m.Step(at(24*time.Hour - 1))
	want(t, "trusted before the last certificate ended", m.Trusted(), r[0])
	m.Step(at(24 * time.Hour))
	want(t, "trusted after", m.Trusted(), r...)
}

func TestNoRootWaitsForWhoFollowsAll(t *testing.T) {
	r := roots(t, 2)
	m := New(Config{Wait: 10 * time.Minute, Outstanding: true, Unplanned: time.Hour})
	told(t, m, begin, r[0])
	m.Issued(r[0], at(time.Hour), m.Bundle(), begin)
	m.Follows(r[0], at(24*time.Hour), begin)
	told(t, m, at(time.Minute), r...)
	m.Follows(r[0], at(25*time.Hour), at(time.Minute))
	m.Step(at(time.Hour))
	want(t, "trusted after those that wait", m.Trusted(), r...)
	told(t, m, at(2*time.Hour), r[1])
	m.Step(at(25*time.Hour - 1))
	want(t, "while what follows lives", m.Bundle(), r...)
	m.Step(at(26 * time.Hour))
	want(t, "after it", m.Bundle(), r[1])
}

func TestOldRootIsWithdrawnLast(t *testing.T) {
	r := roots(t, 2)
	m := New(bundles)
	told(t, m, begin, r[0])
	m.Issued(r[0], at(24*time.Hour), m.Bundle(), begin)
	told(t, m, at(time.Hour), r[1]) // all at once
	want(t, "published", m.Bundle(), r...)
	m.Wrote(m.Bundle(), at(2*time.Hour))
	m.Step(at(3 * time.Hour))
	want(t, "trusted", m.Trusted(), r...)
	m.Step(at(24*time.Hour - 1))
	want(t, "while a certificate lives", m.Bundle(), r...)
	m.Step(at(26 * time.Hour)) // an end is recorded somewhat later
	want(t, "after the last one", m.Bundle(), r[1])
}

// Without a successor that all know, nothing is withdrawn.
func TestLastTrustedRootStays(t *testing.T) {
	r := roots(t, 2)
	m := New(bundles)
	told(t, m, begin, r[0])
	told(t, m, at(time.Hour), r[1])
	m.Step(at(500 * time.Hour)) // never written
	want(t, "published", m.Bundle(), r...)
	m.Step(at(1001 * time.Hour))
	want(t, "past its own end", m.Bundle())
}

func TestRootWithoutCertificatesGoesAtOnce(t *testing.T) {
	r := roots(t, 2)
	m := New(bundles)
	told(t, m, begin, r[0])
	told(t, m, at(time.Hour), r...)
	told(t, m, at(2*time.Hour), r[0])
	want(t, "published", m.Bundle(), r[0])
}

func TestUnplannedRootIsHeldBackShortly(t *testing.T) {
	r := roots(t, 2)
	m := New(bundles)
	told(t, m, begin, r[0])
	told(t, m, at(time.Hour), r[1])
	if got := m.Early(r[1], at(time.Hour)); got != 5*time.Minute {
		t.Errorf("held back for %s while it is not written", got)
	}
	m.Wrote(m.Bundle(), at(time.Hour))
	if got := m.Early(r[1], at(time.Hour+time.Minute)); got != 4*time.Minute {
		t.Errorf("held back for %s", got)
	}
	if got := m.Early(r[1], at(time.Hour+5*time.Minute)); got != 0 {
		t.Errorf("held back for %s after its time", got)
	}
	if got := m.Early(r[0], at(time.Hour)); got != 0 {
		t.Errorf("a trusted root is held back for %s", got)
	}
	if s := m.Status(); s[0].Phase != Trusted && s[1].Phase != Trusted || !s[1].Unplanned {
		t.Errorf("got %+v", s)
	}
}

// The owner of a bundle overwrites it, or a cluster is away: for two days.
func TestRootThatIsNotWrittenIsHeldBackUntilUnplannedEnds(t *testing.T) {
	r := roots(t, 2)
	m := New(bundles)
	told(t, m, begin, r[0])
	told(t, m, at(time.Hour), r...)
	for _, row := range []struct{ now, want time.Duration }{{0, 5 * time.Minute}, {4 * time.Minute, time.Minute}, {5 * time.Minute, 0}, {48 * time.Hour, 0}} {
		now := at(time.Hour + row.now)
		m.Wrote(m.Bundle(), now)
		m.Wrote(set(), now)
		if got := m.Early(r[1], now); got != row.want {
			t.Errorf("held back for %s after %s, want %s", got, row.now, row.want)
		}
	}
	led := New(Config{Wait: 10 * time.Minute, Confirmed: true, Unplanned: 5 * time.Minute, Led: true})
	if _, err := led.Sync(m.Record(), at(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	want(t, "trusted by a follower", led.Trusted(), r...)
}

func TestOutdatedReplyBringsNoRootBack(t *testing.T) {
	r := roots(t, 2)
	m := New(bundles)
	told(t, m, begin, r[0])
	m.Issued(r[0], at(2*time.Hour), m.Bundle(), begin)
	told(t, m, at(time.Hour), r[1])
	if err := m.Replied(set(r[0]), at(time.Hour-1), at(time.Hour+1)); err != nil {
		t.Fatal(err)
	}
	if s := m.Status(); s[0].Phase != Withdrawn {
		t.Errorf("got %+v", s)
	}
}

func TestFloodOfRootsIsRefused(t *testing.T) {
	r := roots(t, maxRoots+1)
	m := New(bundles)
	told(t, m, begin, r[0])
	if err := m.Told(set(r...), begin); err == nil || m.Bundle().Len() != 1 {
		t.Errorf("got %v and %d roots", err, m.Bundle().Len())
	}
	for n := range 1000 { // one after the other
		told(t, m, at(time.Duration(n)*time.Second), r[0], r[1+n%maxRoots])
	}
	if n := m.Bundle().Len(); n != 2 {
		t.Errorf("%d roots are left", n)
	}
}

func TestPhasesAreShown(t *testing.T) {
	r := roots(t, 3)
	m := New(bundles)
	told(t, m, begin, r[0])
	m.Issued(r[0], at(24*time.Hour), m.Bundle(), begin)
	told(t, m, at(time.Hour), r[1])
	m.Wrote(m.Bundle(), at(2*time.Hour))
	told(t, m, at(2*time.Hour+1), r[1], r[2])
	var phases []Phase
	for _, s := range m.Status() {
		phases = append(phases, s.Phase)
	}
	if got := fmt.Sprint(phases); got != "[withdrawn waiting announced]" {
		t.Error(got)
	}
}

func TestDamagedRecordIsRefused(t *testing.T) {
	good := New(bundles)
	told(t, good, begin, roots(t, 1)...)
	for name, text := range map[string]string{
		"empty": "", "cut": string(good.Record()[:40]), "another version": `{"version":2}`, "a leaf": `{"version":1,"roots":[{"pem":"x"}]}`,
		"long": strings.Repeat(" ", maxRecord+1), "many": `{"version":1,"roots":[` + strings.Repeat("{},", maxRoots) + `{}]}`,
	} {
		if _, err := Restore(bundles, []byte(text), begin); err == nil || len(err.Error()) > 500 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCertificateOfSameMinutesLeavesRecordAlone(t *testing.T) {
	r := roots(t, 1)
	m := New(bundles)
	told(t, m, begin, r...)
	m.Issued(r[0], at(24*time.Hour), m.Bundle(), begin)
	before := m.Record()
	m.Issued(r[0], at(24*time.Hour+time.Minute), m.Bundle(), begin)
	if !bytes.Equal(before, m.Record()) {
		t.Error("each certificate changes the record")
	}
	m.Issued(r[0], at(26*time.Hour), m.Bundle(), begin)
	if bytes.Equal(before, m.Record()) {
		t.Error("a later end is not recorded")
	}
}

// Whatever happens, and whenever it is restarted: who holds a certificate finds its root in
// the bundle, and none is given out below a root that was not everywhere, unless the authority has
// signed below it and Unplanned is over.
func TestRandomEventsKeepRootRules(t *testing.T) {
	all := roots(t, 4)
	rapid.Check(t, func(r *rapid.T) {
		conf := Config{Wait: 10 * time.Minute, Outstanding: rapid.Bool().Draw(r, "outstanding"), Confirmed: true, Unplanned: 10 * time.Minute}
		m, now := New(conf), begin
		ends, written := map[string]time.Time{}, map[string]time.Time{}
		announced, signed := map[string]time.Time{}, map[string]bool{}
		some := func() *pki.Bundle {
			return set(rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 3, func(c *x509.Certificate) string { return c.Subject.CommonName }).Draw(r, "roots")...)
		}
		if err := m.Told(set(all[0]), now); err != nil {
			r.Fatal(err)
		}
		written[pki.Fingerprint(all[0])] = now.Add(-time.Hour)
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			switch rapid.IntRange(0, 6).Draw(r, "what") {
			case 0:
				_ = m.Told(some(), now)
			case 1:
				for _, print := range m.Bundle().Fingerprints() {
					if written[print].IsZero() {
						written[print] = now
					}
				}
				m.Wrote(m.Bundle(), now)
			case 2:
				for _, cert := range m.Trusted().Certificates() {
					m.Issued(cert, now.Add(time.Hour), m.Bundle(), now)
					ends[pki.Fingerprint(cert)] = now.Add(time.Hour)
				}
			case 3:
				signs := rapid.SampledFrom(all).Draw(r, "signs")
				signed[pki.Fingerprint(signs)] = m.Bundle().Contains(signs)
				m.Early(signs, now)
			case 4:
				again, err := Restore(conf, m.Record(), now)
				if err != nil {
					r.Fatal(err)
				}
				m = again
			case 5:
				now = now.Add(time.Duration(rapid.IntRange(1, 50).Draw(r, "minutes")) * time.Minute)
				m.Step(now)
			case 6: // somebody removes all but these
				left := some()
				for _, cert := range m.Bundle().Certificates() {
					switch print := pki.Fingerprint(cert); {
					case left.Contains(cert) && written[print].IsZero():
						written[print] = now
					case !left.Contains(cert) && !m.Trusted().Contains(cert):
						delete(written, print)
					}
				}
				m.Wrote(left, now)
			}
			published := m.Bundle().Fingerprints()
			for _, print := range published {
				if announced[print].IsZero() {
					announced[print] = now
				}
			}
			for print, end := range ends {
				if end.After(now) && !contains(published, print) {
					r.Fatalf("a root is gone below which a certificate lives until %s", end)
				}
			}
			for print := range written {
				if !contains(published, print) {
					delete(written, print)
				}
			}
			for print := range announced {
				if !contains(published, print) {
					delete(announced, print)
					delete(signed, print)
				}
			}
			for _, print := range m.Trusted().Fingerprints() {
				if signed[print] && now.Sub(announced[print]) >= conf.Unplanned {
					continue
				}
				if w := written[print]; w.IsZero() || now.Sub(w) < 10*time.Minute && print != pki.Fingerprint(all[0]) {
					r.Fatalf("a root is trusted that was written at %s, it is %s", w, now)
				}
			}
			if m.Trusted().Len() == 0 {
				r.Fatal("no root is trusted any more")
			}
		}
	})
}

func contains(list []string, item string) bool {
	return strings.Contains(strings.Join(list, " "), item)
}

// Certificates are out, and it is not known which roots their verifiers have.
func TestRebuiltMachineTrustsWhatTheAuthoritySignsBelowAlone(t *testing.T) {
	r := roots(t, 2)
	m := Rebuild(Config{Wait: time.Hour, Confirmed: true, Unplanned: 10 * time.Minute})
	told(t, m, begin, r...)
	want(t, "published", m.Bundle(), r...)
	want(t, "trusted", m.Trusted())
	again, err := Restore(m.conf, m.Record(), begin)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Machine{m, again} {
		if wait := m.Early(r[0], begin); wait != 0 {
			t.Errorf("what the authority signs below waits for %s", wait)
		}
		want(t, "trusted then", m.Trusted(), r[0])
		if wait := m.Early(r[1], begin); wait < 9*time.Minute {
			t.Errorf("the other waits for %s", wait)
		}
		m.Wrote(m.Bundle(), begin)
		m.Step(at(time.Hour))
		want(t, "trusted once all have it", m.Trusted(), r...)
	}
}
