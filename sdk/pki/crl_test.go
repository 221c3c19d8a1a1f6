package pki_test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

var crlTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// lister is a CA that writes revocation lists.
type lister struct{ *certtest.Pair }

func newLister(t testing.TB, name string, serial int64, usage x509.KeyUsage, above *lister) *lister {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true, IsCA: usage&x509.KeyUsageCertSign != 0,
		KeyUsage: usage, NotBefore: crlTime.Add(-time.Hour), NotAfter: crlTime.Add(time.Hour),
	}
	if above == nil {
		return &lister{certtest.SelfSigned(t, template)}
	}
	return &lister{above.Issue(t, template)}
}

const signer = x509.KeyUsageCertSign | x509.KeyUsageCRLSign

func (l *lister) crl(t testing.TB, change func(*x509.RevocationList), revoked ...int64) []byte {
	t.Helper()
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: crlTime, NextUpdate: crlTime.Add(30 * time.Minute)}
	for _, serial := range revoked {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: big.NewInt(serial), RevocationTime: crlTime})
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, l.Cert, l.Key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func crlPEM(der ...[]byte) (out []byte) {
	for _, one := range der {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: one})...)
	}
	return out
}

func TestRevocationListsAreReadAsPEMAndDER(t *testing.T) {
	ca := newLister(t, "root", 1, signer, nil)
	one, two := ca.crl(t, nil), ca.crl(t, nil, 7)
	lists, _, err := pki.ParseCRLs(one)
	if err != nil || len(lists) != 1 {
		t.Errorf("DER: %d lists, %v", len(lists), err)
	}
	text := append([]byte("a line of text\n"), crlPEM(one, two)...)
	lists, issuers, err := pki.ParseCRLs(append(text, pki.EncodeCertificates([]*x509.Certificate{ca.Cert})...))
	if err != nil || len(lists) != 2 || len(issuers) != 1 || len(lists[1].RevokedCertificateEntries) != 1 {
		t.Errorf("PEM: %d lists and %d CAs, %v", len(lists), len(issuers), err)
	}
	if err == nil && !bytes.Equal(pki.EncodeCRLs(lists), crlPEM(one, two)) {
		t.Error("what is encoded is not what was read")
	}
}

func TestListsThatAreNotWholeOrNotOnesAreRefused(t *testing.T) {
	ca := newLister(t, "root", 1, signer, nil)
	with := func(id asn1.ObjectIdentifier, critical bool) []byte {
		return crlPEM(ca.crl(t, func(l *x509.RevocationList) {
			l.ExtraExtensions = []pkix.Extension{{Id: id, Critical: critical, Value: []byte{0x02, 0x01, 0x01}}}
		}))
	}
	good := crlPEM(ca.crl(t, nil))
	for want, text := range map[string][]byte{
		"delta list":                  with(asn1.ObjectIdentifier{2, 5, 29, 27}, true),
		"is a delta list":             with(asn1.ObjectIdentifier{2, 5, 29, 27}, false),
		"only some of its CA":         with(asn1.ObjectIdentifier{2, 5, 29, 28}, true),
		"critical extension":          with(asn1.ObjectIdentifier{1, 2, 3}, true),
		"neither PEM nor":             []byte("no list"),
		"holds no PEM block":          pki.EncodeCertificates([]*x509.Certificate{ca.Cert}),
		"is malformed: its END":       append(bytes.Clone(good), good[:len(good)/2]...),
		`is "PRIVATE KEY"`:            append(bytes.Clone(good), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})...),
		"block 1 is not a valid":      crlPEM([]byte("no list")),
		"3145729 bytes of revocation": make([]byte, pki.MaxCRLBytes+1),
		"one list more":               bytes.Repeat(good, pki.MaxCRLs+1),
	} {
		if _, _, err := pki.ParseCRLs(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestListIsSignedOnlyByCAThatMaySignLists(t *testing.T) {
	ca := newLister(t, "root", 1, signer, nil)
	lists, _, err := pki.ParseCRLs(ca.crl(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	if !pki.SignedCRL(lists[0], ca.Cert) {
		t.Error("its CA signed it")
	}
	forged := *lists[0]
	forged.Signature = bytes.Clone(forged.Signature)
	forged.Signature[len(forged.Signature)-1] ^= 1
	if pki.SignedCRL(&forged, ca.Cert) {
		t.Error("name and key identifier are enough")
	}
	for name, other := range map[string]*lister{
		"another key": newLister(t, "root", 1, signer, nil), "another name": newLister(t, "other", 1, signer, nil),
	} {
		if pki.SignedCRL(lists[0], other.Cert) {
			t.Errorf("%s: it signed nothing", name)
		}
	}
	mute := *ca.Cert
	if mute.KeyUsage = x509.KeyUsageCertSign; pki.SignedCRL(lists[0], &mute) {
		t.Error("a CA may sign lists without the key usage for it")
	}
}

// As Envoy does: without a list of its CA that is valid now, it is unknown.
func TestChainIsCheckedAgainstListOfEachCA(t *testing.T) {
	root := newLister(t, "root", 1, signer, nil)
	between := newLister(t, "between", 2, signer, root)
	leaf := newLister(t, "leaf", 3, x509.KeyUsageDigitalSignature, between)
	chain := []*x509.Certificate{leaf.Cert, between.Cert, root.Cert}
	now := crlTime.Add(time.Minute)
	for name, c := range map[string]struct {
		lists    []byte
		leafOnly bool
		at       time.Time
		want     error
	}{
		"nothing to check":       {nil, false, now, nil},
		"nobody revoked":         {crlPEM(root.crl(t, nil, 9), between.crl(t, nil, 9)), false, now, nil},
		"the leaf":               {crlPEM(root.crl(t, nil), between.crl(t, nil, 9, 3)), false, now, pki.ErrRevoked},
		"the intermediate":       {crlPEM(root.crl(t, nil, 2), between.crl(t, nil)), false, now, pki.ErrRevoked},
		"leaf only":              {crlPEM(root.crl(t, nil, 2), between.crl(t, nil)), true, now, nil},
		"another CA's serial":    {crlPEM(root.crl(t, nil, 3), between.crl(t, nil, 2)), false, now, nil},
		"no list of the root":    {crlPEM(between.crl(t, nil)), false, now, pki.ErrNoCRL},
		"none needed, leaf only": {crlPEM(between.crl(t, nil)), true, now, nil},
		"no list of the CA":      {crlPEM(root.crl(t, nil)), true, now, pki.ErrNoCRL},
		"expired":                {crlPEM(root.crl(t, nil), between.crl(t, nil)), false, crlTime.Add(31 * time.Minute), pki.ErrNoCRL},
		"not yet valid":          {crlPEM(root.crl(t, nil), between.crl(t, nil)), false, crlTime.Add(-time.Second), pki.ErrNoCRL},
		"the later one counts": {crlPEM(root.crl(t, nil), between.crl(t, func(l *x509.RevocationList) { l.Number = big.NewInt(2) }, 3),
			between.crl(t, nil)), false, now, pki.ErrRevoked},
	} {
		check, err := pki.NewRevocations(c.lists, c.leafOnly)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 2 { // the second time, the signers are remembered
			if _, err := check.Check(chain, c.at); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		}
	}
}

func TestAnswerHoldsUntilFirstListEnds(t *testing.T) {
	root := newLister(t, "root", 1, signer, nil)
	leaf := newLister(t, "leaf", 3, x509.KeyUsageDigitalSignature, root)
	check, err := pki.NewRevocations(crlPEM(root.crl(t, nil)), false)
	if err != nil {
		t.Fatal(err)
	}
	until, err := check.Check([]*x509.Certificate{leaf.Cert, root.Cert}, crlTime)
	if err != nil || !until.Equal(crlTime.Add(30*time.Minute)) {
		t.Errorf("it holds until %s, %v", until, err)
	}
}

func FuzzParseCRLs(f *testing.F) {
	ca := newLister(f, "root", 1, signer, nil)
	f.Add(ca.crl(f, nil, 7))
	f.Add(crlPEM(ca.crl(f, nil, 7)))
	f.Add(pki.EncodeCertificates([]*x509.Certificate{ca.Cert}))
	f.Fuzz(func(t *testing.T, text []byte) {
		lists, _, err := pki.ParseCRLs(text)
		if err == nil && len(lists) == 0 {
			t.Error("neither a list nor an error")
		}
		for _, list := range lists {
			pki.SignedCRL(list, ca.Cert)
		}
	})
}
