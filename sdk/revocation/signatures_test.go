package revocation

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

// crossed returns CAs and lists that all have one name.
func crossed(cas, lists int) (roots []*x509.Certificate, crls []*x509.RevocationList) {
	for i := range cas {
		roots = append(roots, &x509.Certificate{Raw: []byte{byte(i)}, RawSubject: []byte("one name")})
	}
	for range lists {
		crls = append(crls, &x509.RevocationList{RawIssuer: []byte("one name"), NextUpdate: time.Now().Add(time.Hour)})
	}
	return roots, crls
}

func TestEachPairOfListAndCAIsVerifiedOnce(t *testing.T) {
	verified := map[pair]int{}
	var s signatures
	s.verify = func(list *x509.RevocationList, ca *x509.Certificate) bool {
		verified[pair{list, [32]byte{ca.Raw[0]}}]++
		return ca.Raw[0] == 0
	}
	roots, lists := crossed(20, 40)
	judge := func(lists []*x509.RevocationList) verdict {
		s.begin()
		return authorities{roots: roots, signatures: &s}.judge(lists, false, time.Now())
	}
	for range 3 {
		if v := judge(append(lists[:1:1], lists...)); len(v.newest) != 1 || len(v.without) != 19 {
			t.Fatalf("%d CAs have a list, %d have none", len(v.newest), len(v.without))
		}
	}
	if len(verified) != 20*40 {
		t.Errorf("%d pairs were verified, want %d", len(verified), 20*40)
	}
	for _, times := range verified {
		if times != 1 {
			t.Fatalf("a pair was verified %d times", times)
		}
	}
	if judge(lists[:1]); len(s.now) != 20 {
		t.Errorf("%d pairs are remembered of a list and 20 CAs", len(s.now))
	}
}

func TestPairsOfListsAndCAsAreBounded(t *testing.T) {
	n := 0
	s := signatures{verify: func(*x509.RevocationList, *x509.Certificate) bool { n++; return false }}
	roots, lists := crossed(100, 100)
	s.begin()
	authorities{roots: roots, signatures: &s}.judge(lists, false, time.Now())
	if n != maxPairs || !strings.Contains(s.fault(), "1000 signatures") {
		t.Errorf("%d signatures were verified, want %d; the fault is %q", n, maxPairs, s.fault())
	}
	s.begin()
	authorities{roots: roots[:3], signatures: &s}.judge(lists[:3], false, time.Now())
	if s.fault() != "" {
		t.Errorf("few pairs afterwards: %s", s.fault())
	}
}

func TestManyNewListsDoNotDisplaceThoseHeld(t *testing.T) {
	s := signatures{verify: func(_ *x509.RevocationList, ca *x509.Certificate) bool { return len(ca.Raw) == 2 }}
	roots, _ := crossed(20, 0)
	ca := &x509.Certificate{Raw: []byte{0, 0}, RawSubject: []byte("another name")}
	held := &x509.RevocationList{RawIssuer: ca.RawSubject, NextUpdate: time.Now().Add(time.Hour)}
	roots = append(roots, ca)
	for _, lists := range []int{0, 100, 100} {
		_, many := crossed(0, lists)
		s.begin()
		v := authorities{roots: roots, signatures: &s}.judge(append(many, held), false, time.Now())
		if len(v.newest) != 1 || v.newest[0].list != held {
			t.Errorf("with %d lists of another CA, %d are served, want the one that is held", lists, len(v.newest))
		}
	}
}
