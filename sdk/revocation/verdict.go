package revocation

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// verdict is what lists amount to for the CAs of one bundle at one moment.
type verdict struct {
	newest  []signed
	without []string // CAs whose peers are refused, each in words
	foreign []string // names in lists that no CA of the bundle has
	refused []string // lists that a CA of the bundle should have signed, and did not
	next    time.Time
}

// signed is a list with the CA that signed it.
type signed struct {
	ca   *x509.Certificate
	list *x509.RevocationList
}

// authorities are the CAs of a bundle.
type authorities struct {
	roots, between []*x509.Certificate
	*signatures
}

// among returns the roots, and those of certs that are CAs under them.
func (s *signatures) among(roots, certs []*x509.Certificate, now time.Time) authorities {
	opts := x509.VerifyOptions{
		Roots: pki.NewBundle(roots...).Pool(), Intermediates: pki.NewBundle(certs...).Pool(),
		CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}
	all := authorities{roots: roots, signatures: s}
	for _, cert := range pki.NewBundle(certs...).Certificates() {
		if !cert.IsCA || slices.ContainsFunc(roots, cert.Equal) {
			continue
		}
		if _, err := cert.Verify(opts); err == nil {
			all.between = append(all.between, cert)
		}
	}
	return all
}

func (a authorities) all() []*x509.Certificate { return append(slices.Clone(a.roots), a.between...) }

// needs reports whether peers of that CA are refused without a list of it. If only leaves are
// checked, a root needs none as long as all that it signs for is known to be other CAs.
func (a authorities) needs(ca *x509.Certificate, leafOnly bool) bool {
	return !leafOnly || !slices.ContainsFunc(a.between, func(below *x509.Certificate) bool {
		return bytes.Equal(below.RawIssuer, ca.RawSubject) && below.CheckSignatureFrom(ca) == nil
	})
}

// judge finds the newest list of each CA.
func (a authorities) judge(lists []*x509.RevocationList, leafOnly bool, now time.Time) verdict {
	var v verdict
	for _, ca := range a.all() {
		list, begins := a.newest(ca, lists, now)
		v.consider(begins, now)
		if list != nil {
			v.newest = append(v.newest, signed{ca, list})
			v.consider(list.NextUpdate, now)
		}
		if lack := lackOf(list, begins, now); lack != "" && a.needs(ca, leafOnly) {
			v.without = append(v.without, nameOf(ca)+" "+lack)
		}
	}
	a.sort(&v, lists)
	return v
}

// newest returns the list of a CA that counts, or nil, and when the first one that is not valid yet
// begins. A current list comes before an expired one, else the later one.
func (s *signatures) newest(ca *x509.Certificate, lists []*x509.RevocationList, now time.Time) (best *x509.RevocationList, begins time.Time) {
	for _, list := range lists {
		switch {
		case !s.signed(list, ca):
		case list.ThisUpdate.After(now):
			begins = clock.First(begins, list.ThisUpdate)
		case best == nil || pki.CRLCurrent(list, now) && !pki.CRLCurrent(best, now),
			pki.CRLCurrent(list, now) == pki.CRLCurrent(best, now) && pki.LaterCRL(list, best):
			best = list
		}
	}
	return best, begins
}

func lackOf(list *x509.RevocationList, begins, now time.Time) string {
	switch {
	case list != nil && pki.CRLCurrent(list, now):
		return ""
	case list != nil:
		return "has one that ended at " + clock.Stamp(list.NextUpdate)
	case !begins.IsZero():
		return "has one that begins at " + clock.Stamp(begins)
	}
	return "has none"
}

// consider notes when the verdict may change by itself.
func (v *verdict) consider(t, now time.Time) {
	if !t.IsZero() && !t.Before(now) {
		v.next = clock.First(v.next, t)
	}
}

// sort returns what is wrong with the lists that no CA of the bundle signed.
func (a authorities) sort(v *verdict, lists []*x509.RevocationList) {
	cas := a.all()
	for _, list := range lists {
		if slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return a.signed(list, ca) }) {
			continue
		}
		name := text.Quote(list.Issuer.String())
		if slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return string(ca.RawSubject) == string(list.RawIssuer) }) {
			v.refused = append(v.refused, fmt.Sprintf("a list in the name of %s is not signed by the CA of that name in the bundle, or that CA may not sign lists", name))
		} else {
			v.foreign = append(v.foreign, name)
		}
	}
}

// lists returns the newest lists, each once.
func (v *verdict) lists() []*x509.RevocationList {
	var all []*x509.RevocationList
	for _, s := range v.newest {
		if !slices.Contains(all, s.list) { // two certificates of one CA and key
			all = append(all, s.list)
		}
	}
	return all
}

func nameOf(ca *x509.Certificate) string { return text.Quote(ca.Subject.String()) }
