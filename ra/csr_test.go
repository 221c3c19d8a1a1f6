package ra_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestBadCSRIsInvalid(t *testing.T) {
	for name, make := range map[string]func() []byte{
		"nothing":      func() []byte { return nil },
		"DER":          func() []byte { block, _ := pem.Decode(empty(0)); return block.Bytes },
		"two":          func() []byte { return append(empty(0), empty(1)...) },
		"too long":     func() []byte { return append(empty(0), make1(1<<20)...) },
		"damaged":      func() []byte { return damaged(empty(0)) },
		"dear RSA key": func() []byte { return dear(t) },
		"an extension": func() []byte {
			return csr(0, &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24}, Value: []byte{5, 0}}}})
		},
		"an e-mail address": func() []byte {
			return csr(0, &x509.CertificateRequest{EmailAddresses: []string{"root@example.org"}})
		},
		"another name": func() []byte { // a user principal name, as Windows reads it
			return csr(0, &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: []byte{0x30, 4, 0xa0, 2, 6, 0}}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, nil)
			defer h.Close()
			req := request()
			req.CSR = make()
			h.refused(req, ca.ErrInvalid)
			if len(h.ca.Requests()) > 0 {
				t.Error("the authority was asked")
			}
			if n := len(h.paper.Lines(t, "refused")); n != 1 {
				t.Errorf("%d audit lines", n)
			}
		})
	}
}

func make1(n int) []byte { return []byte(strings.Repeat("a", n)) }

func damaged(pemBytes []byte) []byte {
	block, _ := pem.Decode(pemBytes)
	block.Bytes[len(block.Bytes)-3] ^= 1
	return pem.EncodeToMemory(block)
}

// dear is a CSR whose signature takes minutes to verify.
func dear(t *testing.T) []byte {
	block, _ := pem.Decode(empty(0))
	var parts struct {
		Info struct {
			Version    int
			Subject    asn1.RawValue
			Key        asn1.RawValue
			Attributes asn1.RawValue `asn1:"tag:0"`
		}
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	if _, err := asn1.Unmarshal(block.Bytes, &parts); err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKIXPublicKey(certtest.CostlyKey(16384, 65537))
	if err != nil {
		t.Fatal(err)
	}
	parts.Info.Key = asn1.RawValue{FullBytes: key}
	der, err := asn1.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func TestRuleLimitsKeyTypes(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	small := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	rule := mesh()
	rule.KeyTypes = []string{"ecdsa-p256", "rsa-3072"}
	h := newHouse(t, func(c *ra.Config) { c.Policy = policy(t, rule) })
	defer h.Close()
	req := request()
	req.CSR = small
	if err := h.refused(req, ca.ErrInvalid); !strings.Contains(err.Error(), "rsa-2048") {
		t.Error(err)
	}
	h.must(request())
}

func TestMLDSAKeyIsCertifiedAndLimitedLikeOthers(t *testing.T) {
	if _, err := pki.ParseKeyType("ml-dsa-44"); err != nil {
		t.Skip(err)
	}
	key, err := pki.GenerateKey(pki.MLDSA44)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	req := request()
	req.CSR = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	for allowed, certified := range map[string]bool{"": true, "ml-dsa-44": true, "ml-dsa-65": false, "ecdsa-p256": false} {
		rule := mesh()
		if allowed != "" {
			rule.KeyTypes = []string{allowed}
		}
		h := newHouse(t, func(c *ra.Config) { c.Policy = policy(t, rule) })
		if certified {
			h.must(req)
		} else if err := h.refused(req, ca.ErrInvalid); !strings.Contains(err.Error(), "a key of type ml-dsa-44 is not certified") {
			t.Error(err)
		}
		h.Close()
	}
}

func TestDoorLimitsKeyTypes(t *testing.T) {
	h := newHouse(t, func(c *ra.Config) { c.Doors[0].KeyTypes = []string{"ecdsa-p384", "ed25519"} })
	defer h.Close()
	if err := h.refused(request(), ca.ErrInvalid); !errors.Is(err, ra.ErrKeyType) || !strings.Contains(err.Error(), `use one of ["ecdsa-p384" "ed25519"]`) {
		t.Error(err)
	}
	req := request()
	req.Door = istio
	h.must(req)
	h.config.Doors[0].KeyTypes = []string{"dsa"}
	if _, err := ra.New(h.config); err == nil || !strings.Contains(err.Error(), `door "kubelet": the key type "dsa"`) {
		t.Errorf("an unknown type: %v", err)
	}
}

func TestAuthorityOfCSRNamesIsRefusedForCSRsWithoutThem(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Set(func() { h.ca.Unable = ca.ErrUnimplemented })
		if err := h.CheckAbilities(h.t.Context()); err == nil || !strings.Contains(err.Error(), `rule "mesh": the door "kubelet"`) {
			t.Errorf("at configuration: %v", err)
		}
		h.refused(request(), ca.ErrNotConfigured)
		req := request()
		req.Door = istio
		req.Subject.PodUID = "2"
		h.refused(req, ca.ErrInvalid) // the next one may name what is granted
		id := &url.URL{Scheme: "spiffe", Host: "example.org", Path: "/ns/shop/sa/web"}
		req.Subject.PodUID, req.CSR = "3", csr(1, &x509.CertificateRequest{URIs: []*url.URL{id}})
		if len(h.ca.Requests()) > 0 {
			t.Error("the authority was asked")
		}
		h.must(req)
		h.ca.Set(func() { h.ca.Unable = ca.ErrUnavailable })
		if err := h.CheckAbilities(h.t.Context()); err != nil {
			t.Errorf("an authority whose abilities are unknown is refused: %v", err)
		}
	})
}

// sidecar is a CSR as a stock Istio agent makes it: its subject is one organization, which no one
// sets, and its names are critical (security/pkg/pki/util/generate_csr.go).
func sidecar(subject pkix.Name) []byte {
	names, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte("spiffe://example.org/ns/shop/sa/web")}})
	if err != nil {
		panic(err)
	}
	return csr(1, &x509.CertificateRequest{
		Subject: subject, ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true, Value: names}},
	})
}

func TestEmptyOrganizationOfASidecarIsIgnored(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Set(func() {
			h.ca.Unable = ca.ErrUnimplemented
			h.ca.Change = func(leaf *x509.Certificate, csr *x509.CertificateRequest) { leaf.RawSubject = csr.RawSubject }
		})
		req := request()
		req.Door, req.CSR = istio, sidecar(pkix.Name{Organization: []string{""}})
		h.must(req)
		for pod, real := range []pkix.Name{{Organization: []string{"system:masters"}}, {Organization: []string{""}, CommonName: "web"}, {Organization: []string{" "}}} {
			req.CSR, req.Subject.PodUID = sidecar(real), strconv.Itoa(pod)
			h.refused(req, ca.ErrInvalid)
		}
	})
}

func TestCommonNameMayBeTheRequestID(t *testing.T) {
	var id string // step-ca's template takes the subject of the one-time token
	inBubble(t, nil, func(h *house) {
		h.ca.Set(func() {
			h.ca.Before = func(_ context.Context, req ca.SignRequest) error { id = req.ID; return nil }
			h.ca.Change = func(leaf *x509.Certificate, _ *x509.CertificateRequest) { leaf.Subject.CommonName = id }
		})
		req := request()
		req.Door, req.CSR = istio, sidecar(pkix.Name{Organization: []string{""}})
		if got := h.must(req); got.RequestID != id {
			t.Errorf("the certificate is of request %s, not %s", got.RequestID, id)
		}
		h.ca.Set(func() {
			h.ca.Change = func(leaf *x509.Certificate, _ *x509.CertificateRequest) { leaf.Subject.CommonName = id[1:] }
		})
		req.Subject.PodUID = "another pod"
		h.refused(req, ca.ErrUnavailable)
	})
}
