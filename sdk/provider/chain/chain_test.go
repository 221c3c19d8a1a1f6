package chain_test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/chain"
)

func authority(name string, end time.Duration) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(end),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
}

func leaf(end time.Duration) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: "leaf"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(end)}
}

// again signs another certificate for the key of one.
func again(t *testing.T, of *certtest.Pair, template *x509.Certificate, by *certtest.Pair) *certtest.Pair {
	t.Helper()
	return &certtest.Pair{Cert: by.Sign(t, template, of.Key.Public()), Key: of.Key}
}

func csrOf(t *testing.T, p *certtest.Pair) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func pemOf(pairs ...*certtest.Pair) []byte {
	certs := make([]*x509.Certificate, len(pairs))
	for i, p := range pairs {
		certs[i] = p.Cert
	}
	return pki.EncodeCertificates(certs)
}

// pkcs7 is a SignedData with certificates only.
func pkcs7(t *testing.T, pairs ...*certtest.Pair) []byte {
	t.Helper()
	set := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true}
	for _, p := range pairs {
		set.Bytes = append(set.Bytes, p.Cert.Raw...)
	}
	empty := asn1.RawValue{Tag: asn1.TagSet, IsCompound: true}
	signed, err := asn1.Marshal(struct {
		Version int
		Algs    asn1.RawValue
		Content struct{ Type asn1.ObjectIdentifier }
		Certs   asn1.RawValue
		Signers asn1.RawValue
	}{1, empty, struct{ Type asn1.ObjectIdentifier }{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}}, set, empty})
	if err != nil {
		t.Fatal(err)
	}
	der, err := asn1.Marshal(struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue
	}{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: signed}})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// open is an element of BER that was begun before its length was known.
func open(tag byte, parts ...[]byte) []byte {
	return slices.Concat([]byte{tag, 0x80}, bytes.Join(parts, nil), []byte{0, 0})
}

// long is one whose length has more octets than needed.
func long(tag byte, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	return slices.Concat([]byte{tag, 0x85, 0, 0}, []byte{byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body)
}

var (
	idSignedData = []byte{6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2}
	idData       = []byte{6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1}
)

// ber is a SignedData as an authority streams it, with content if there is some.
func ber(element func(tag byte, parts ...[]byte) []byte, content []byte, pairs ...*certtest.Pair) []byte {
	var certs [][]byte
	for _, p := range pairs {
		certs = append(certs, p.Cert.Raw)
	}
	attribute := element(0xa1, []byte{2, 1, 1}) // a certificate of attributes, by its tag
	return element(0x30, idSignedData, element(0xa0, element(0x30,
		[]byte{2, 1, 1}, element(0x31), element(0x30, idData, content), element(0xa0, append(certs, attribute)...), element(0x31))))
}

func TestBagInAnyOrderBecomesChainAndRoots(t *testing.T) {
	root := certtest.SelfSigned(t, authority("root", 1000*time.Hour))
	upper := root.Issue(t, authority("upper", 900*time.Hour))
	lower := upper.Issue(t, authority("lower", 800*time.Hour))
	end := lower.Issue(t, leaf(time.Hour))
	old := again(t, lower, authority("lower", 2*time.Hour), upper) // the same key, before it was renewed
	older := again(t, end, leaf(time.Minute), lower)
	namesake := certtest.SelfSigned(t, authority("lower", 2000*time.Hour)) // the name alone does not make an issuer
	stranger := certtest.SelfSigned(t, authority("stranger", 2000*time.Hour))
	all := []*certtest.Pair{root, upper, lower, end, old, older, namesake, stranger, lower, end}
	want, wantRoots := pemOf(end, lower, upper), pemOf(root)
	for range 20 {
		// Fisher and Yates would do; sorting by a random bag of bytes is enough.
		order := map[*certtest.Pair]string{}
		for _, p := range all {
			order[p] = rand.Text()
		}
		slices.SortFunc(all, func(a, b *certtest.Pair) int { return strings.Compare(order[a], order[b]) })
		der := pkcs7(t, all...)
		for name, bag := range map[string][]byte{
			"PEM": append([]byte("a word before\n"), pemOf(all...)...), "PKCS #7": der, "base64": []byte(base64.StdEncoding.EncodeToString(der)[:76] + "\r\n" + base64.StdEncoding.EncodeToString(der)[76:] + "\n"),
			"PKCS #7 in PEM": pem.EncodeToMemory(&pem.Block{Type: "PKCS7", Bytes: der}),
			"BER":            ber(open, nil, all...), "BER in base64": []byte(base64.StdEncoding.EncodeToString(ber(open, nil, all...))), "long lengths": ber(long, nil, all...),
			"BER with content": ber(open, open(0xa0, open(0x24, []byte{4, 2, 0, 0}, []byte{4, 1, 0})), all...),
		} {
			got, err := chain.Certificate(csrOf(t, end), bag)
			if err != nil || !bytes.Equal(got.Chain, want) || !bytes.Equal(got.Roots, wantRoots) {
				t.Fatalf("%s: got\n%s%s%v", name, got.Chain, got.Roots, err)
			}
		}
	}
	if got, err := chain.Certificate(csrOf(t, end), pkcs7(t, end), pemOf(root, lower, upper)); err != nil || !bytes.Equal(got.Chain, want) || !bytes.Equal(got.Roots, wantRoots) {
		t.Errorf("of two bags: got\n%s%s%v", got.Chain, got.Roots, err)
	}
	if got, err := chain.Roots(pemOf(upper, root, root, stranger, end)); err != nil || !bytes.Equal(got, pki.NewBundle(root.Cert, stranger.Cert).PEM()) {
		t.Errorf("got\n%s%v", got, err)
	}
}

func TestCrossSignedRootsAreAllReached(t *testing.T) {
	before := certtest.SelfSigned(t, authority("before", 1000*time.Hour))
	after := certtest.SelfSigned(t, authority("after", 1000*time.Hour))
	cross := again(t, after, authority("after", 2000*time.Hour), before)
	back := again(t, before, authority("before", 2000*time.Hour), after) // and the other way: a loop
	inter := after.Issue(t, authority("inter", 900*time.Hour))
	end := inter.Issue(t, leaf(time.Hour))
	got, err := chain.Certificate(csrOf(t, end), pemOf(back, cross, before, end, inter, after))
	if err != nil || !bytes.Equal(got.Chain, pemOf(end, inter)) || !bytes.Equal(got.Roots, pki.NewBundle(before.Cert, after.Cert).PEM()) {
		t.Errorf("got\n%s%s%v", got.Chain, got.Roots, err)
	}
	if got, err = chain.Certificate(csrOf(t, end), pemOf(cross, before, end, inter)); err != nil || !bytes.Equal(got.Chain, pemOf(end, inter, cross)) || !bytes.Equal(got.Roots, pemOf(before)) {
		t.Errorf("with the older root alone: got\n%s%s%v", got.Chain, got.Roots, err)
	}
}

func TestBagWithoutRootGivesLongestChain(t *testing.T) {
	root := certtest.SelfSigned(t, authority("root", 1000*time.Hour))
	upper := root.Issue(t, authority("upper", 900*time.Hour))
	end := upper.Issue(t, leaf(time.Hour))
	if got, err := chain.Certificate(csrOf(t, end), pemOf(upper, end)); err != nil || !bytes.Equal(got.Chain, pemOf(end, upper)) || got.Roots != nil {
		t.Errorf("got\n%s%s%v", got.Chain, got.Roots, err)
	}
	if got, err := chain.Certificate(csrOf(t, end), pemOf(root, end)); err != nil || !bytes.Equal(got.Chain, pemOf(end)) || got.Roots != nil {
		t.Errorf("without an intermediate: got\n%s%s%v", got.Chain, got.Roots, err)
	}
}

// both are of openssl crl2pkcs7, stream of openssl cms -sign -stream.
var openSSLs = []string{"testdata/both.p7b", "testdata/both.p7b.pem", "testdata/stream.p7m", "testdata/stream.p7m.pem"}

func TestOpenSSLsPKCS7IsRead(t *testing.T) {
	for _, name := range openSSLs {
		bag, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		certs, err := chain.Parse(bag)
		if err != nil || len(certs) != 2 {
			t.Fatalf("%s: %d certificates, %v", name, len(certs), err)
		}
		if roots, err := chain.Roots(bag); err != nil || !bytes.Contains(roots, []byte("BEGIN CERTIFICATE")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUselessBagIsInternalError(t *testing.T) {
	root := certtest.SelfSigned(t, authority("root", time.Hour))
	end := root.Issue(t, leaf(time.Hour))
	good := pkcs7(t, root)
	for says, bag := range map[string][]byte{
		"there are none": {}, "neither PEM nor PKCS #7": []byte("sesame"), "neither PEM nor PKCS": good[:len(good)-1], "there are none ": pkcs7(t), "want CERTIFICATE, PKCS7 or CMS": pem.EncodeToMemory(&pem.Block{Type: "X", Bytes: []byte("sesame")}),
		`PEM block 2 "CERTIFICATE" at line `: append(pemOf(root), "-----BEGIN CERTIFICATE-----\nsesame"...), "there are more than 64": bytes.Repeat(pemOf(root), 65), "there are more than 64 ": pkcs7(t, slices.Repeat([]*certtest.Pair{root}, 65)...),
		"bytes, 1048576 are allowed": make([]byte, 1<<20+1), "none of the authority's 1 certificates has the key of the CSR": pemOf(root), "certificate 1 of 1 is malformed": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("sesame")}),
		"RSA key of 16384 bits": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certtest.Costly(t, certtest.CostlyKey(16384, 65537))}),
	} {
		_, err := chain.Certificate(csrOf(t, end), bag)
		if len(bag) == 0 || says == "there are none " {
			says = ""
		}
		if !errors.Is(err, ca.ErrInternal) || !strings.Contains(err.Error(), strings.TrimSpace(says)) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	if _, err := chain.Parse(bytes.Repeat(pemOf(root), 40), bytes.Repeat(pemOf(root), 40)); err == nil || !strings.Contains(err.Error(), "more than 64") {
		t.Errorf("two large bags: %v", err)
	}
	if _, err := chain.Roots(pemOf(end)); !errors.Is(err, ca.ErrInternal) || !strings.Contains(err.Error(), "is a root") {
		t.Errorf("got %v", err)
	}
	if _, err := chain.Certificate([]byte("no CSR"), pemOf(end)); !errors.Is(err, ca.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

// Elements that never end, or are nested without end, are refused.
func TestMalformedBERIsRefused(t *testing.T) {
	root := certtest.SelfSigned(t, authority("root", time.Hour))
	good := ber(open, nil, root)
	deep := []byte{5, 0}
	for range 17 {
		deep = open(0x30, deep)
	}
	for name, bag := range map[string][]byte{
		"cut": good[:len(good)-1], "more follows": append(slices.Clone(good), 0), "open and primitive": ber(open, open(0x04, []byte{5, 0}), root),
		"deep": ber(open, deep, root), "endless": bytes.Repeat([]byte{0x30, 0x80}, 1<<19), "a long tag": ber(open, []byte{0x1f, 0x81, 1, 0}, root),
		"a large length": {0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0}, "a length cut": {0x30, 0x84, 0}, "empty": open(0x30), "no content": open(0x30, idSignedData),
		"no version": open(0x30, idSignedData, open(0xa0, open(0x30, open(0x31), open(0x31), open(0x30), open(0x31)))), "no signers": open(0x30, idSignedData, open(0xa0, open(0x30, []byte{2, 1, 1}, open(0x31), open(0x30)))),
		"seven parts": open(0x30, idSignedData, open(0xa0, open(0x30, []byte{2, 1, 1}, open(0x31), open(0x30), open(0xa0, root.Cert.Raw), open(0xa1), open(0x31), open(0x31)))),
	} {
		if certs, err := chain.Parse(bag); !errors.Is(err, ca.ErrInternal) || !strings.Contains(err.Error(), "neither PEM nor PKCS #7") {
			t.Errorf("%s: %d certificates, %v", name, len(certs), err)
		}
	}
	if _, err := chain.Parse(open(0x30, idData, open(0xa0, good))); err == nil || !strings.Contains(err.Error(), "not SignedData") {
		t.Errorf("%v", err)
	}
	if _, err := chain.Parse(ber(open, nil, slices.Repeat([]*certtest.Pair{root}, 65)...)); err == nil || !strings.Contains(err.Error(), "more than 64") {
		t.Errorf("%v", err)
	}
}

// Namesakes that all might have signed each other cost a bounded number of checks.
func TestNamesakesCostBoundedWork(t *testing.T) {
	all := make([]*certtest.Pair, 60)
	for i := range all {
		all[i] = certtest.SelfSigned(t, authority("same", time.Hour))
	}
	template := leaf(time.Hour)
	end := all[0].Issue(t, template)
	var middle []*certtest.Pair
	for range 3 {
		middle = append(middle, all[0].Issue(t, authority("same", time.Hour)))
	}
	if _, err := chain.Certificate(csrOf(t, end), pemOf(append(append(all, end), middle...)...)); err != nil && !strings.Contains(err.Error(), "too many ways") {
		t.Errorf("got %v", err)
	}
	var deep []*certtest.Pair
	above := all[0]
	for range 50 {
		above = above.Issue(t, authority("same", time.Hour))
		deep = append(deep, above)
	}
	end = above.Issue(t, leaf(time.Hour))
	if _, err := chain.Certificate(csrOf(t, end), pemOf(append(deep, end)...)); err == nil || !strings.Contains(err.Error(), "too many ways") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range openSSLs {
		bag, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bag)
	}
	f.Fuzz(func(t *testing.T, bag []byte) {
		certs, err := chain.Parse(bag)
		if (err == nil) != (len(certs) > 0) || len(certs) > 64 {
			t.Errorf("%d certificates, %v", len(certs), err)
		}
		_, _ = chain.Roots(bag)
	})
}
