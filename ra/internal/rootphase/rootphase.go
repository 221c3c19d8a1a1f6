// Package rootphase decides when a new root may be signed under and an old one may go:
// [Machine]. It has no goroutine and no lock; the time comes from a [Clock], which compares two.
//
// What is written is not delivered: a trust bundle takes a minute to reach a pod's disk and
// longer to be read again. So a new root is published first, waited for, and only then are
// certificates below it given out; the old one is withdrawn last. All roots are published, whatever
// their phase, until they are gone:
//
//	phase      is entered by                      certificates  is left for
//	                                              below it
//	announced  a set of the CA has it; Wrote      held back     waiting: Wrote with it
//	           without it                                       trusted: Early, and Unplanned after
//	                                                              the announcement
//	                                                            gone: the CA drops it
//	waiting    Wrote                              held back     trusted: Wait is over and, with
//	                                                              Outstanding, all certificates have
//	                                                              ended that came without it
//	                                                            trusted: Early, as above
//	                                                            announced: Wrote without it
//	                                                            gone: the CA drops it
//	trusted    first roots; the above             given out     withdrawn: the CA drops it
//	withdrawn  the CA drops it                    verified      gone: the last of them has ended, Wait
//	                                                              is over, and another is trusted
//	                                                            its former phase: the CA has it again
//	gone       its own end, from any phase        refused
//
// The first published roots are trusted at once, as no certificate is held yet. After the record
// was lost, the first root that the authority signs below is trusted.
//
// Where several give out an authority's certificates, one of them decides, and the others are led:
// [Machine.Sync] takes the phases from the common record, and adds to it what was given out.
package rootphase

import (
	"crypto/x509"
	"fmt"
	"maps"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// maxRoots bounds the roots of one authority, those that are withdrawn included.
const maxRoots = 100

// Config says how roots reach those who verify with them.
type Config struct {
	// Wait is how long a written root takes to reach everybody.
	Wait time.Duration
	// Outstanding adds the life of the certificates that are out: those who learn roots
	// only with their certificates know a new one when the last of these has ended.
	Outstanding bool
	// Confirmed says that roots count as written when Wrote says so. Otherwise they do as
	// soon as they are told.
	Confirmed bool
	// Unplanned is how long after its announcement a root is trusted at the latest once the
	// authority signs below it.
	Unplanned time.Duration
	// Led says that another decides, as soon as its record has roots.
	Led bool
}

// Phase is where a root stands.
type Phase string

// The phases.
const (
	Announced Phase = "announced" // to be written to the bundles
	Waiting   Phase = "waiting"   // written, not yet everywhere
	Trusted   Phase = "trusted"   // certificates below it are given out
	Withdrawn Phase = "withdrawn" // the authority names it no more; certificates below it live
)

// root is one root with its times; a zero time has not come.
type root struct {
	cert      *x509.Certificate
	announced time.Time
	after     end // of the last certificate whose holder has not heard of it
	written   time.Time
	trusted   time.Time // since when, once it is
	unplanned bool      // the authority signs below it already
	withdrawn time.Time
	ends      end  // of the last certificate below it
	replied   bool // a reply brought it
	recorded  bool // it is in the record of whoever leads
}

// Machine is what is known of one authority's roots.
type Machine struct {
	conf   Config
	roots  map[string]*root // by fingerprint
	told   *pki.Bundle      // the last whole set
	change time.Time        // when that was another one before
	latest end              // of the last certificate of all
	led    bool             // there is a record to go by
	lost   bool             // what was known before
}

// New returns a Machine for an authority below which no certificate was given out.
func New(conf Config) *Machine { return &Machine{conf: conf, roots: map[string]*root{}} }

// Rebuild returns a Machine for an authority whose record is lost. Certificates are out, and any of its
// roots may be new to those who verify them. So all are published and wait, except the one that the
// authority signs below: [Machine.Early].
func Rebuild(conf Config) *Machine {
	m := New(conf)
	m.lost = true
	return m
}

// SetWait replaces [Config].Wait, for roots that wait already as well.
func (m *Machine) SetWait(wait time.Duration) { m.conf.Wait = wait }

// Told takes the authority's whole set of roots. An error means that nothing was taken.
func (m *Machine) Told(set *pki.Bundle, now time.Time) error {
	return m.tell(set, false, now)
}

func (m *Machine) tell(set *pki.Bundle, replied bool, now time.Time) error {
	if err := m.add(set, replied, now); err != nil {
		return err
	}
	if !set.Equal(m.told) {
		m.told, m.change = set, now
	}
	for _, r := range m.roots {
		if !r.recorded && r.withdrawn.IsZero() && !set.Contains(r.cert) {
			r.withdrawn = now
		}
	}
	m.Step(now)
	return nil
}

// Replied takes the roots of a reply to a request sent at asked, which add to what is told.
// A reply that was in flight while the told set changed may be outdated, and adds nothing.
func (m *Machine) Replied(set *pki.Bundle, asked, now time.Time) error {
	if m.told != nil && asked.Before(m.change) {
		return nil
	}
	if err := m.add(set, true, now); err != nil {
		return err
	}
	m.Step(now)
	return nil
}

// RepliedAll takes the roots of a reply as the whole set, of an authority that tells none
// elsewhere.
func (m *Machine) RepliedAll(set *pki.Bundle, asked, now time.Time) error {
	if asked.Before(m.change) {
		return nil
	}
	return m.tell(set, true, now)
}

func (m *Machine) add(set *pki.Bundle, replied bool, now time.Time) error {
	first := len(m.roots) == 0 && !m.lost
	var fresh []*x509.Certificate
	for _, cert := range set.Certificates() {
		switch r := m.roots[pki.Fingerprint(cert)]; {
		case r != nil && r.recorded: // which says whether it is withdrawn
		case r != nil:
			r.withdrawn = time.Time{}
		case cert.NotAfter.After(now):
			fresh = append(fresh, cert)
		}
	}
	if len(m.roots)+len(fresh) > maxRoots {
		return fmt.Errorf("%d roots are too many: an authority has %d at most, those that are withdrawn included", len(m.roots)+len(fresh), maxRoots)
	}
	for _, cert := range fresh {
		r := &root{cert: cert, announced: now, after: m.latest, replied: replied}
		if first {
			r.written, r.trusted = now, now
		}
		m.roots[pki.Fingerprint(cert)] = r
	}
	return nil
}

// Wrote says that the bundle has these roots wherever it is published. A root that is not among
// them any more waits anew once it is written again, unless it is trusted already.
func (m *Machine) Wrote(set *pki.Bundle, now time.Time) {
	m.Step(now) // it may have been everywhere until now
	for _, r := range m.roots {
		switch has := set.Contains(r.cert); {
		case has && r.written.IsZero():
			r.written = now
		case !has && r.trusted.IsZero():
			r.written = time.Time{}
		}
	}
	m.Step(now)
}

// Early says that the authority has signed below a root, maybe before its time, and returns
// how long such certificates are held back: zero if the root is trusted, as it is if no other one
// is.
func (m *Machine) Early(cert *x509.Certificate, now time.Time) time.Duration {
	r := m.roots[pki.Fingerprint(cert)]
	if r == nil {
		return time.Second
	}
	r.unplanned = true
	if !r.recorded {
		r.withdrawn = time.Time{}
	}
	if m.Step(now); m.Trusted().Len() == 0 {
		r.trusted = now
	}
	if !r.trusted.IsZero() {
		return 0
	}
	return max(m.due(r).Sub(now), time.Second)
}

// Issued records a certificate that is given out, with the roots that its holder got. It reports
// whether that changes the record.
func (m *Machine) Issued(below *x509.Certificate, ends time.Time, with *pki.Bundle, now time.Time) (changed bool) {
	changed = m.latest.reach(ends, now)
	changed = m.Follows(below, ends, now) || changed
	for _, r := range m.roots {
		if r.trusted.IsZero() && !with.Contains(r.cert) { // it was announced meanwhile
			changed = r.after.reach(ends, now) || changed
		}
	}
	return changed
}

// Follows records a certificate whose holder has each root as soon as the engine does: no new root
// waits for it, and the one above it stays while it lives. It reports whether that changes the
// record.
func (m *Machine) Follows(below *x509.Certificate, ends, now time.Time) (changed bool) {
	r := m.roots[pki.Fingerprint(below)]
	return r != nil && r.ends.reach(ends, now)
}

// Step does what is due at now. It returns when more is; zero for never.
func (m *Machine) Step(now time.Time) (next time.Time) {
	for _, r := range m.roots {
		if r.written.IsZero() && !m.led && !m.confirmed() {
			r.written = now
		}
		if r.trusted.IsZero() && r.withdrawn.IsZero() && m.ripe(r, now) {
			r.trusted = now
		}
	}
	maps.DeleteFunc(m.roots, func(_ string, r *root) bool { return m.gone(r, now) })
	for _, r := range m.roots {
		if t := m.changes(r); !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

// confirmed reports whether somebody says what is written. Nobody does for one that is to be led,
// and is not.
func (m *Machine) confirmed() bool { return m.conf.Confirmed && (m.led || !m.conf.Led) }

// Bundle returns the roots to publish: all of them.
func (m *Machine) Bundle() *pki.Bundle { return m.those(func(*root) bool { return true }) }

// Trusted returns the roots below which certificates are given out.
func (m *Machine) Trusted() *pki.Bundle {
	return m.those(func(r *root) bool { return !r.trusted.IsZero() })
}

func (m *Machine) those(which func(*root) bool) *pki.Bundle {
	var certs []*x509.Certificate
	for _, r := range m.roots {
		if which(r) {
			certs = append(certs, r.cert)
		}
	}
	return pki.NewBundle(certs...)
}
