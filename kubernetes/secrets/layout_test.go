package secrets

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// staple is the shell of an OCSP response with that status.
func staple(status int) []byte { return stapleOf(status, []byte{1}) }

func stapleOf(status int, content []byte) []byte {
	var response ocspResponse
	response.Status = asn1.Enumerated(status)
	response.Content.Type, response.Content.Response = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 1, 1}, content
	der, err := asn1.Marshal(response)
	if err != nil {
		panic(err)
	}
	return der
}

func TestSecretLayoutsAreReadInOrder(t *testing.T) {
	a, b := of("a"), of("b")
	crl, crl2 := crlOf("a"), crlOf("b")
	for name, test := range map[string]struct {
		data             data
		chain, key, ocsp []byte // of the pair; nil where there is none
		ca, crl          []byte // of the CA
	}{
		"generic":          {data: data{"cert": a.cert, "key": a.key}, chain: a.cert, key: a.key},
		"generic with all": {data: data{"cert": a.cert, "key": a.key, "cacert": b.cert, "crl": crl}, chain: a.cert, key: a.key, ca: b.cert, crl: crl},
		"generic, only CA": {data: data{"cacert": b.cert}, ca: b.cert},
		"tls":              {data: data{"tls.crt": a.cert, "tls.key": a.key}, chain: a.cert, key: a.key},
		"tls with all":     {data: data{"tls.crt": a.cert, "tls.key": a.key, "tls.ocsp-staple": staple(0), "ca.crt": b.cert, "ca.crl": crl}, chain: a.cert, key: a.key, ocsp: staple(0), ca: b.cert, crl: crl},
		"tls, only CA":     {data: data{"ca.crt": b.cert, "ca.crl": crl}, ca: b.cert, crl: crl},
		"generic before tls": {data: data{"cert": a.cert, "key": a.key, "tls.crt": b.cert, "tls.key": b.key, "cacert": a.cert, "crl": crl, "ca.crt": b.cert, "ca.crl": crl2},
			chain: a.cert, key: a.key, ca: a.cert, crl: crl},
		"half a generic":       {data: data{"cert": a.cert, "tls.crt": b.cert, "tls.key": b.key, "cacert": {}, "ca.crt": b.cert, "crl": crl}, chain: b.cert, key: b.key, ca: b.cert},
		"a chain":              {data: data{"cert": slices.Concat(a.cert, b.cert), "key": a.key}, chain: slices.Concat(a.cert, b.cert), key: a.key},
		"two roots, two lists": {data: data{"cacert": slices.Concat(a.cert, b.cert), "crl": slices.Concat(crl, crl2)}, ca: slices.Concat(a.cert, b.cert), crl: slices.Concat(crl, crl2)},
		"an older form of key": {data: data{"cert": a.cert, "key": sec1(a)}, chain: a.cert, key: a.key},
		"text around it":       {data: data{"cert": slices.Concat([]byte("the chain:\n"), a.cert), "key": a.key}, chain: a.cert, key: a.key},
	} {
		s := newScene(t, nil)
		s.at("home").put("shop/foo", test.data)
		c := caller("home", "shop", "web")
		if test.chain == nil {
			if got := s.had(t, c, "kubernetes://foo"); got != "malformed" {
				t.Errorf("%s: a pair is %s", name, got)
			}
		} else if got := s.secret(t, c, "kubernetes://foo").GetTlsCertificate(); !bytes.Equal(got.GetCertificateChain().GetInlineBytes(), test.chain) ||
			!bytes.Equal(got.GetPrivateKey().GetInlineBytes(), test.key) || !bytes.Equal(got.GetOcspStaple().GetInlineBytes(), test.ocsp) {
			t.Errorf("%s: the pair is another", name)
		}
		if test.ca == nil {
			if got := s.had(t, c, "kubernetes://foo-cacert"); got != "malformed" {
				t.Errorf("%s: a CA is %s", name, got)
			}
		} else if got := s.secret(t, c, "kubernetes://foo-cacert").GetValidationContext(); !bytes.Equal(got.GetTrustedCa().GetInlineBytes(), test.ca) ||
			!bytes.Equal(got.GetCrl().GetInlineBytes(), test.crl) {
			t.Errorf("%s: the CA is another", name)
		}
	}
}

// sec1 returns the key as openssl ecparam writes it.
func sec1(c credential) []byte {
	block, _ := pem.Decode(c.key)
	var inner struct {
		Version   int
		Algorithm asn1.RawValue
		Key       []byte
	}
	if _, err := asn1.Unmarshal(block.Bytes, &inner); err != nil {
		panic(err)
	}
	// What is in a PKCS #8 key of a curve leaves the curve out, which SEC 1 has.
	var key struct {
		Version int
		Key     []byte
		Curve   asn1.ObjectIdentifier `asn1:"optional,explicit,tag:0"`
		Public  asn1.BitString        `asn1:"optional,explicit,tag:1"`
	}
	if _, err := asn1.Unmarshal(inner.Key, &key); err != nil {
		panic(err)
	}
	key.Curve = asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7}
	der, err := asn1.Marshal(key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func TestMalformedSecretIsSkippedAndLoggedOnce(t *testing.T) {
	a, b := of("a"), of("b")
	crl := crlOf("a")
	for name, test := range map[string]struct {
		resource string
		data     data
		says     string
	}{
		"empty":                 {"foo", data{}, "neither cert and key nor tls.crt and tls.key"},
		"a key alone":           {"foo", data{"tls.key": a.key}, "neither"},
		"another's key":         {"foo", data{"tls.crt": a.cert, "tls.key": b.key}, "does not match the first certificate"},
		"the chain upside down": {"foo", data{"tls.crt": slices.Concat(b.cert, a.cert), "tls.key": a.key}, "does not match the first certificate"},
		"an RSA key too small":  {"foo", smallRSA(t), "the RSA key has 1024 bits, Envoy requires 2048"},
		"no PEM":                {"foo", data{"tls.crt": []byte("MIIB"), "tls.key": a.key}, "certificate: "},
		"no certificate":        {"foo", data{"tls.crt": a.key, "tls.key": a.key}, "certificate: "},
		"a key in the chain":    {"foo", data{"tls.crt": slices.Concat(a.cert, a.key), "tls.key": a.key}, "PRIVATE KEY"},
		"a cut certificate":     {"foo", data{"tls.crt": a.cert[:len(a.cert)/2], "tls.key": a.key}, "certificate: "},
		"a cut key":             {"foo", data{"tls.crt": a.cert, "tls.key": a.key[:len(a.key)/2]}, "key: "},
		"an encrypted key":      {"foo", data{"tls.crt": a.cert, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{1}})}, "encrypted"},
		"a certificate as key":  {"foo", data{"tls.crt": a.cert, "tls.key": a.cert}, "key: "},
		"a huge key":            {"foo", data{"tls.crt": a.cert, "tls.key": slices.Concat(a.key, make([]byte, maxKey))}, "bytes"},
		"a long chain":          {"foo", data{"tls.crt": bytes.Repeat(a.cert, maxChain+1), "tls.key": a.key}, "21 certificates"},
		"a staple of text":      {"foo", data{"tls.crt": a.cert, "tls.key": a.key, "tls.ocsp-staple": []byte("try later")}, "OCSP"},
		"a staple that says no": {"foo", data{"tls.crt": a.cert, "tls.key": a.key, "tls.ocsp-staple": staple(3)}, "OCSP"},
		"a staple and more":     {"foo", data{"tls.crt": a.cert, "tls.key": a.key, "tls.ocsp-staple": append(staple(0), 0)}, "OCSP"},
		"a staple of nothing":   {"foo", data{"tls.crt": a.cert, "tls.key": a.key, "tls.ocsp-staple": {0x30, 3, 0x0a, 1, 0}}, "OCSP"},
		"a huge staple":         {"foo", data{"tls.crt": a.cert, "tls.key": a.key, "tls.ocsp-staple": make([]byte, maxStaple+1)}, "bytes"},
		"no CA":                 {"foo-cacert", data{"tls.crt": a.cert, "tls.key": a.key}, "neither cacert nor ca.crt"},
		"a key as CA":           {"foo-cacert", data{"ca.crt": a.key}, "CA: "},
		"a key in the CA":       {"foo-cacert", data{"ca.crt": slices.Concat(a.cert, a.key)}, "PRIVATE KEY"},
		"a key before the CA":   {"foo-cacert", data{"cacert": slices.Concat(a.key, a.cert)}, "PRIVATE KEY"},
		"a huge CA":             {"foo-cacert", data{"ca.crt": bytes.Repeat(a.cert, 2+(1<<20)/len(a.cert))}, "bytes"},
		"a CRL of text":         {"foo-cacert", data{"ca.crt": a.cert, "ca.crl": []byte("none")}, "CRL"},
		"a key as CRL":          {"foo-cacert", data{"ca.crt": a.cert, "ca.crl": a.key}, "CRL"},
		"a key after the CRL":   {"foo-cacert", data{"ca.crt": a.cert, "ca.crl": slices.Concat(crl, a.key)}, "CRL"},
		"a CRL called a key":    {"foo-cacert", data{"ca.crt": a.cert, "ca.crl": bytes.ReplaceAll(crl, []byte("X509 CRL"), []byte("PRIVATE KEY"))}, "CRL"},
		"a malformed CRL":       {"foo-cacert", data{"ca.crt": a.cert, "ca.crl": pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte{1}})}, "CRL"},
		"a huge CRL":            {"foo-cacert", data{"ca.crt": a.cert, "ca.crl": make([]byte, maxCRL+1)}, "bytes"},
	} {
		s := newScene(t, nil)
		s.at("home").put("shop/foo", test.data)
		s.at("home").put("shop/good", tlsOf("good"))
		c := caller("home", "shop", "web")
		for range 3 {
			if got := s.had(t, c, "kubernetes://"+test.resource); got != "malformed" {
				t.Errorf("%s: %s", name, got)
			}
		}
		if got := s.had(t, c, "kubernetes://good"); got != "key good" {
			t.Errorf("%s costs another its secret: %s", name, got)
		}
		if counts := s.Counts(); counts.Malformed != 1 || counts.Refused[Malformed] != 3 {
			t.Errorf("%s: counted %+v", name, counts)
		}
		if log := s.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, test.says) || holdsKey(log, a) {
			t.Errorf("%s: logged\n%s", name, log)
		}
	}
}

// holdsKey looks for what differs between two keys of one type.
func holdsKey(text string, c credential) bool {
	lines := strings.Split(string(c.key), "\n")
	return strings.Contains(text, lines[2][:20])
}

// Base64 between two certificates is no PEM block, and might be a key.
func TestOnlyParsedCertificatesAreServed(t *testing.T) {
	a, b := of("a"), of("b")
	naked := []byte(strings.Join(strings.Split(string(b.key), "\n")[1:3], "\n") + "\n")
	withHeader := func(block []byte) []byte {
		return bytes.Replace(block, []byte("-----\n"), slices.Concat([]byte("-----\nKey: "), bytes.ReplaceAll(naked, []byte("\n"), nil), []byte("\n\n")), 1)
	}
	s := newScene(t, nil)
	s.at("home").put("shop/foo", data{
		"tls.crt": slices.Concat(a.cert, naked), "tls.key": a.key,
		"ca.crt": slices.Concat(naked, withHeader(a.cert), naked), "ca.crl": withHeader(crlOf("a")),
	})
	for _, name := range []string{"kubernetes://foo", "kubernetes://foo-cacert"} {
		resource, err := s.Peek(caller("home", "shop", "web"), name)
		must(t, err)
		if holdsKey(string(resource.Body.Value), b) {
			t.Errorf("%s holds what stood beside the certificates", name)
		}
	}
}

func TestExpiredCertificateIsServedWithOneWarning(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	s := newScene(t, func(c *Config) { c.Now = func() time.Time { return now } })
	pair, root := issue("soon", now.Add(time.Hour)), issue("root", now.Add(2*time.Hour))
	s.at("home").put("shop/foo", data{"tls.crt": slices.Concat(pair.cert, root.cert), "tls.key": pair.key, "ca.crt": slices.Concat(of("a").cert, root.cert)})
	c := caller("home", "shop", "web")
	serve := func(after time.Duration, expired uint64) {
		t.Helper()
		now = now.Add(after)
		for range 3 {
			s.secret(t, c, "kubernetes://foo")
			s.secret(t, c, "kubernetes://foo-cacert")
		}
		if n := s.Counts().Expired; n != expired || strings.Count(s.log.String(), "\n") != int(expired) {
			t.Errorf("at %s: %d are counted; logged:\n%s", now, n, s.log)
		}
	}
	serve(0, 0)
	serve(time.Hour, 1)
	serve(time.Hour, 2)
	// The same content in a new version of the object is not said again.
	s.at("home").put("shop/foo", s.at("home").secrets["shop/foo"].Data)
	serve(0, 2)
}

func TestVersionDependsOnContentAndHidesKey(t *testing.T) {
	s := newScene(t, nil)
	c := caller("home", "shop", "web")
	version := func(name string) string {
		t.Helper()
		resource, err := s.Peek(c, name)
		must(t, err)
		return resource.Version
	}
	s.at("home").put("shop/foo", tlsOf("a"))
	pair, ca := version("kubernetes://foo"), version("kubernetes://foo-cacert")
	again := tlsOf("a")
	again["note"] = []byte("x")
	s.at("home").put("shop/foo", again)
	if version("kubernetes://foo") != pair || version("kubernetes://foo-cacert") != ca || pair == ca {
		t.Error("the version changes with what is not served")
	}
	again["tls.ocsp-staple"], again["ca.crl"] = staple(0), crlOf("a")
	s.at("home").put("shop/foo", again)
	if version("kubernetes://foo") == pair || version("kubernetes://foo-cacert") == ca {
		t.Error("the version stays as the content changes")
	}
	s.at("home").put("shop/foo", data{"cert": again["tls.crt"], "key": again["tls.key"]})
	if version("kubernetes://foo") != pair {
		t.Error("the version is of the layout")
	}
}

func TestRSAKeyIsServedUnchanged(t *testing.T) {
	key, err := pki.GenerateKey(pki.RSA2048)
	must(t, err)
	encoded, err := pki.EncodeKey(key)
	must(t, err)
	s := newScene(t, nil)
	s.at("home").put("shop/foo", data{"cert": selfSigned(key), "key": encoded})
	got := s.secret(t, caller("home", "shop", "web"), "kubernetes://foo").GetTlsCertificate().GetPrivateKey().GetInlineBytes()
	if !bytes.Equal(got, encoded) {
		t.Error("the key is another")
	}
}

// smallRSA is a pair that Go loads, and Envoy does not.
func smallRSA(t *testing.T) data {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	must(t, err)
	encoded, err := pki.EncodeKey(key)
	must(t, err)
	cert := certtest.Root(t).Sign(t, certtest.Leaf(t, time.Hour), key.Public())
	return data{"tls.crt": pki.EncodeCertificates([]*x509.Certificate{cert}), "tls.key": encoded}
}
