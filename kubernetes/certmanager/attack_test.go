package certmanager

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/url"
	"testing"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func spiffe(text string) []*url.URL {
	id, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return []*url.URL{id}
}

// template is a CSR for the name web with a change.
func template(change func(c *x509.CertificateRequest)) []byte {
	c := &x509.CertificateRequest{DNSNames: []string{web}}
	change(c)
	return ratest.CSR(pki.ECDSAP256, c)
}

func csr(change func(c *x509.CertificateRequest)) func(r *request) {
	return func(r *request) { r.Spec.Request = template(change) }
}

func names(all ...string) func(r *request) {
	return func(r *request) { r.Spec.Request = named(all...) }
}

func usages(all ...cmapi.KeyUsage) func(r *request) {
	return func(r *request) { r.Spec.Usages = all }
}

func extension(id asn1.ObjectIdentifier, value any) func(r *request) {
	return csr(func(c *x509.CertificateRequest) {
		der, err := asn1.Marshal(value)
		if err != nil {
			panic(err)
		}
		c.ExtraExtensions = []pkix.Extension{{Id: id, Value: der}}
	})
}

var (
	oidKeyUsage         = asn1.ObjectIdentifier{2, 5, 29, 15}
	oidBasicConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}
	oidExtKeyUsage      = asn1.ObjectIdentifier{2, 5, 29, 37}
	oidServerAuth       = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 1}
	oidCodeSigning      = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 3}
	oidForeign          = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 20, 2}
)

// Each request is approved, as cert-manager approves all of them by default. None may cost a
// certificate.
func TestAttackersGetNothing(t *testing.T) {
	for name, attack := range map[string]func(r *request){
		"another namespace's name":             names("web.bank.apps.example.org"),
		"a name without an owner":              names("www.example.org"),
		"the namespace's name and another":     names(web, "www.example.org"),
		"the domain itself":                    names("shop.apps.example.org"),
		"one label more":                       names("a.b.shop.apps.example.org"),
		"a wildcard":                           names("*.shop.apps.example.org"),
		"a wildcard over all namespaces":       names("*.apps.example.org"),
		"another script":                       names("xn--80ak6aa92e.shop.apps.example.org"),
		"a dot at the end":                     names(web + "."),
		"no name":                              names(),
		"33 names":                             names(many(33)...),
		"a namespace without a rule":           func(r *request) { r.Namespace = "other" },
		"a namespace whose name has another's": func(r *request) { r.Namespace = "shop-2" },
		"a SPIFFE ID":                          csr(func(c *x509.CertificateRequest) { c.URIs = spiffe("spiffe://example.org/ns/shop/sa/web") }),
		"a SPIFFE ID alone": csr(func(c *x509.CertificateRequest) {
			c.DNSNames, c.URIs = nil, spiffe("spiffe://example.org/ns/istio-system/sa/istiod")
		}),
		"a URL":                                csr(func(c *x509.CertificateRequest) { c.URIs = spiffe("https://example.org") }),
		"an IP address":                        csr(func(c *x509.CertificateRequest) { c.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }),
		"an e-mail address":                    csr(func(c *x509.CertificateRequest) { c.EmailAddresses = []string{"root@example.org"} }),
		"a common name that is not a DNS name": csr(func(c *x509.CertificateRequest) { c.Subject.CommonName = "www.example.org" }),
		"a common name alone":                  csr(func(c *x509.CertificateRequest) { c.DNSNames, c.Subject.CommonName = nil, web }),
		"a user of Kubernetes":                 csr(func(c *x509.CertificateRequest) { c.Subject.CommonName = "system:admin" }),
		"a group of Kubernetes":                csr(func(c *x509.CertificateRequest) { c.Subject.Organization = []string{"system:masters"} }),
		"a group beside a common name": csr(func(c *x509.CertificateRequest) {
			c.Subject.CommonName, c.Subject.Organization = web, []string{"system:masters"}
		}),
		"two common names":                csr(func(c *x509.CertificateRequest) { c.Subject.ExtraNames = twoNames() }),
		"isCA":                            func(r *request) { r.Spec.IsCA = true },
		"isCA, also in the CSR":           func(r *request) { r.Spec.IsCA = true; extension(oidBasicConstraints, constraints(true))(r) },
		"a CSR for an authority":          extension(oidBasicConstraints, constraints(true)),
		"cert sign":                       usages(cmapi.UsageDigitalSignature, cmapi.UsageCertSign),
		"crl sign":                        usages(cmapi.UsageDigitalSignature, cmapi.UsageCRLSign),
		"code signing":                    usages(cmapi.UsageDigitalSignature, cmapi.UsageCodeSigning),
		"code signing beside server auth": usages(cmapi.UsageDigitalSignature, cmapi.UsageServerAuth, cmapi.UsageCodeSigning),
		"any usage":                       usages(cmapi.UsageDigitalSignature, cmapi.UsageAny),
		"no digital signature":            usages(cmapi.UsageKeyAgreement, cmapi.UsageServerAuth),
		"a usage that is not known":       usages("everything"),
		"a CSR for cert sign":             extension(oidKeyUsage, asn1.BitString{Bytes: []byte{0x04}, BitLength: 6}),
		"a CSR for code signing":          extension(oidExtKeyUsage, []asn1.ObjectIdentifier{oidCodeSigning}),
		"a CSR with usages that the request lacks": extension(oidExtKeyUsage, []asn1.ObjectIdentifier{oidServerAuth}),
		"a CSR with an extension of its own":       extension(oidForeign, "DomainController"),
		"a type of key that the rule has not": func(r *request) {
			r.Spec.Request = ratest.CSR(pki.ECDSAP384, &x509.CertificateRequest{DNSNames: []string{web}})
		},
		"no CSR": func(r *request) { r.Spec.Request = nil },
		"no PEM": func(r *request) { r.Spec.Request = []byte("-----BEGIN") },
		"a certificate": func(r *request) {
			r.Spec.Request = bytes.ReplaceAll(named(web), []byte("CERTIFICATE REQUEST"), []byte("CERTIFICATE"))
		},
		"two CSRs":                       func(r *request) { r.Spec.Request = append(named(web), named("www.example.org")...) },
		"a CSR with another's signature": func(r *request) { r.Spec.Request = forged() },
		"a huge CSR":                     func(r *request) { r.Spec.Request = append(named(web), bytes.Repeat([]byte("\n"), 32<<10)...) },
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				r := honest()
				attack(r)
				_, err := h.try(r, clusterIssuer("ca"))
				h.wants(err, "permanent", "")
				if lines := h.audit.Refusals(h.t); lines != 1 {
					h.t.Errorf("%d refusals in the audit log", lines)
				}
				if h.asked() > 0 {
					t.Errorf("the CA was asked: %v", err)
				}
				if err != nil && len(err.Error()) > 1500 {
					t.Errorf("the message has %d bytes", len(err.Error()))
				}
				r = honest() // the attack must not affect other requests
				r.UID = "uid-2"
				h.must(r)
			})
		})
	}
}

func TestRefusalNamesWhatToChange(t *testing.T) {
	for want, change := range map[string]func(r *request){
		"isCA is set": func(r *request) { r.Spec.IsCA = true },
		`the DNS name "www.example.org" is asked for, and the rule allows none like it`: names("www.example.org"),
		`the policy for authority "ca" grants the namespace nothing: no rule matches`:   func(r *request) { r.Namespace = "other" },
		"usages has no digital signature":                                               usages(cmapi.UsageKeyAgreement),
	} {
		inHouse(t, nil, func(h *house) {
			r := honest()
			change(r)
			_, err := h.try(r, clusterIssuer("ca"))
			h.wants(err, "permanent", want)
		})
	}
}

// What clients add that does no harm.
func TestHarmlessRequestsAreGranted(t *testing.T) {
	for name, change := range map[string]func(r *request){
		"a common name of its own": csr(func(c *x509.CertificateRequest) { c.Subject.CommonName = web }),
		"an empty organization":    csr(func(c *x509.CertificateRequest) { c.Subject.Organization = []string{""} }),
		"usages for TLS":           usages(cmapi.UsageDigitalSignature, cmapi.UsageKeyEncipherment, cmapi.UsageServerAuth, cmapi.UsageClientAuth),
		"server auth alone":        usages(cmapi.UsageServerAuth),
		"a CSR with its usages": func(r *request) {
			usages(cmapi.UsageServerAuth)(r)
			extension(oidExtKeyUsage, []asn1.ObjectIdentifier{oidServerAuth})(r)
		},
		"basic constraints without CA": extension(oidBasicConstraints, constraints(false)),
		"upper case":                   names("WEB.shop.apps.example.org"), // which is the same name
		"two names":                    names(web, "b.shop.apps.example.org"),
		"a lifetime of years":          func(r *request) { r.Spec.Duration.Duration *= 24 * 365 * 10 },
		"no lifetime":                  func(r *request) { r.Spec.Duration = nil },
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				r := honest()
				change(r)
				h.must(r)
			})
		})
	}
}

// An authority that signs what a CSR names gets only CSRs that name what is granted.
func TestAuthorityThatReadsTheCSRSignsExactNames(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		_, err := h.try(honest(), issuerOf("plain"))
		must(t, err)
		r := honest()
		r.UID, r.Spec.Request = "uid-2", template(func(c *x509.CertificateRequest) { c.Subject.CommonName = web })
		_, err = h.try(r, issuerOf("plain"))
		h.wants(err, "pending", "signs what the CSR names")
	})
}

func many(n int) (all []string) {
	for i := range n {
		all = append(all, string(rune('a'+i%26))+string(rune('a'+i/26))+".shop.apps.example.org")
	}
	return all
}

func twoNames() []pkix.AttributeTypeAndValue {
	cn := asn1.ObjectIdentifier{2, 5, 4, 3}
	return []pkix.AttributeTypeAndValue{{Type: cn, Value: "www.example.org"}, {Type: cn, Value: web}}
}

// constraints are basic constraints (RFC 5280, section 4.2.1.9).
func constraints(is bool) any {
	return struct {
		IsCA bool `asn1:"optional"`
	}{is}
}

// forged is a CSR whose signature does not hold.
func forged() []byte {
	block, _ := pem.Decode(named(web))
	block.Bytes = bytes.Replace(block.Bytes, []byte("web"), []byte("sea"), 1)
	return pem.EncodeToMemory(block)
}
