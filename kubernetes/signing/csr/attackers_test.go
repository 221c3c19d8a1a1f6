package csr_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// extension is a CSR with the account's name and an extension of its own.
func extension(id asn1.ObjectIdentifier, value []byte) []byte {
	uri, _ := url.Parse(spiffe)
	return csrOf(pki.ECDSAP256, &x509.CertificateRequest{URIs: []*url.URL{uri}, ExtraExtensions: []pkix.Extension{{Id: id, Value: value}}})
}

func named(change func(*x509.CertificateRequest)) func(*request) {
	return func(r *request) {
		uri, _ := url.Parse(spiffe)
		template := &x509.CertificateRequest{URIs: []*url.URL{uri}}
		change(template)
		r.Spec.Request = csrOf(pki.ECDSAP256, template)
	}
}

// attackers are requests that can never be right, with the reason that their status shows.
var attackers = map[string]struct {
	change func(r *request)
	reason string
}{
	"names of another":      {named(func(t *x509.CertificateRequest) { t.URIs[0], _ = url.Parse("spiffe://example.org/ns/shop/sa/admin") }), "NamesNotPermitted"},
	"a name more":           {named(func(t *x509.CertificateRequest) { t.DNSNames = []string{"web.shop.svc"} }), "NamesNotPermitted"},
	"an address more":       {named(func(t *x509.CertificateRequest) { t.IPAddresses = []net.IP{{10, 0, 0, 1}} }), "NamesNotPermitted"},
	"two IDs":               {named(func(t *x509.CertificateRequest) { t.URIs = append(t.URIs, t.URIs[0]) }), "NamesNotPermitted"},
	"no name":               {named(func(t *x509.CertificateRequest) { t.URIs = nil }), "NamesNotPermitted"},
	"an e-mail address":     {named(func(t *x509.CertificateRequest) { t.EmailAddresses = []string{"a@example.org"} }), "NamesNotPermitted"},
	"an administrator":      {named(func(t *x509.CertificateRequest) { t.Subject.Organization = []string{"system:masters"} }), "SubjectNotAllowed"},
	"a node's user":         {named(func(t *x509.CertificateRequest) { t.Subject.CommonName = "System:node:a" }), "SubjectNotAllowed"},
	"a subject":             {named(func(t *x509.CertificateRequest) { t.Subject.CommonName = "web" }), "SubjectNotAllowed"},
	"system: as a URI":      {named(func(t *x509.CertificateRequest) { t.URIs[0], _ = url.Parse("system:masters") }), "NamesNotPermitted"},
	"system: as a DNS name": {named(func(t *x509.CertificateRequest) { t.DNSNames = []string{"system:masters"} }), "NamesNotPermitted"},
	"another extension": {func(r *request) {
		r.Spec.Request = extension(asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24}, []byte{5, 0})
	}, "InvalidCertificateSigningRequest"},
	"a CSR to sign code": {func(r *request) {
		r.Spec.Request = extension(asn1.ObjectIdentifier{2, 5, 29, 37}, []byte{0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 3})
	}, "UsagesNotPermitted"},
	"a CSR for clients alone": {func(r *request) {
		r.Spec.Request = extension(asn1.ObjectIdentifier{2, 5, 29, 37}, []byte{0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2})
	}, "UsagesNotPermitted"},
	"a CSR to sign certificates": {func(r *request) {
		r.Spec.Request = extension(asn1.ObjectIdentifier{2, 5, 29, 15}, []byte{3, 2, 2, 0x84})
	}, "UsagesNotPermitted"},
	"a CSR to be a CA": {func(r *request) {
		r.Spec.Request = extension(asn1.ObjectIdentifier{2, 5, 29, 19}, []byte{0x30, 3, 1, 1, 0xff})
	}, "UsagesNotPermitted"},
	"a CSR with a broken extension": {func(r *request) {
		r.Spec.Request = extension(asn1.ObjectIdentifier{2, 5, 29, 37}, []byte{5, 0})
	}, "UsagesNotPermitted"},
	"to sign certificates":     {func(r *request) { r.Spec.Usages = append(r.Spec.Usages, "cert sign") }, "UsagesNotPermitted"},
	"any usage":                {func(r *request) { r.Spec.Usages = append(r.Spec.Usages, "any") }, "UsagesNotPermitted"},
	"to sign code":             {func(r *request) { r.Spec.Usages = []certificatesv1.KeyUsage{"code signing"} }, "UsagesNotPermitted"},
	"a key of another type":    {func(r *request) { r.Spec.Request = csrOf(pki.ECDSAP384, nil) }, "UnsupportedKeyType"},
	"a forged signature":       {func(r *request) { r.Spec.Request[len(r.Spec.Request)-45] ^= 3 }, "InvalidCertificateSigningRequest"},
	"a huge CSR":               {func(r *request) { r.Spec.Request = append(r.Spec.Request, strings.Repeat("\n", 1<<20)...) }, "InvalidCertificateSigningRequest"},
	"two CSRs":                 {func(r *request) { r.Spec.Request = append(r.Spec.Request, r.Spec.Request...) }, "InvalidCertificateSigningRequest"},
	"no CSR":                   {func(r *request) { r.Spec.Request = nil }, "InvalidCertificateSigningRequest"},
	"too short":                {func(r *request) { s := int32(599); r.Spec.ExpirationSeconds = &s }, "InvalidLifetime"},
	"negative":                 {func(r *request) { s := int32(-1); r.Spec.ExpirationSeconds = &s }, "InvalidLifetime"},
	"nobody":                   {func(r *request) { r.Spec.Username = "" }, "RequesterNotEligible"},
	"anonymous":                {func(r *request) { r.Spec.Username = "system:anonymous" }, "RequesterNotEligible"},
	"unauthenticated":          {func(r *request) { r.Spec.Groups = append(r.Spec.Groups, "system:unauthenticated") }, "RequesterNotEligible"},
	"a user called like one":   {func(r *request) { r.Spec.Groups = []string{"system:authenticated"} }, "RequesterNotEligible"},
	"of another namespace":     {func(r *request) { r.Spec.Username = "system:serviceaccount:bank:web" }, "RequesterNotEligible"},
	"a name in two parts":      {func(r *request) { r.Spec.Username = "system:serviceaccount:shop:web:x" }, "RequesterNotEligible"},
	"an account made anew":     {func(r *request) { r.Spec.UID = "old-uid" }, "RequesterNotEligible"},
	"an account without a UID": {func(r *request) { r.Spec.UID = "" }, "RequesterNotEligible"},
	"a pod made anew":          {func(r *request) { r.Spec.Extra["authentication.kubernetes.io/pod-uid"] = []string{"old"} }, "RequesterNotEligible"},
	"a node without its group": {func(r *request) { r.Spec.Username = "system:node:a" }, "RequesterNotEligible"},
	"a user without a rule":    {func(r *request) { r.Spec.Username = "joe" }, "NotPermitted"},
	"a user with another's":    {func(r *request) { r.Spec.Username = "jane" }, "NamesNotPermitted"},
	"the controller manager":   {func(r *request) { r.Spec.Username = "system:kube-controller-manager" }, "NotPermitted"},
	"a user with a long name":  {func(r *request) { r.Spec.Username = strings.Repeat("j", 1000) }, "NotPermitted"},
}

func TestAttackersAreDenied(t *testing.T) {
	for name, test := range attackers {
		t.Run(name, func(t *testing.T) {
			inCluster(t, nil, func(c *cluster) {
				r := honest()
				test.change(r)
				c.create(r)
				want := "Denied " + test.reason
				c.want(want)
				if lines := c.audit.Refusals(c.t); lines != 1 {
					c.t.Errorf("%d refusals in the audit log", lines)
				}
				if last := c.get("req-1").Status.Conditions; len(last) == 0 || last[len(last)-1].Message == "" || len(last[len(last)-1].Message) > 2000 {
					t.Errorf("conditions %+v", last)
				}
				pass(time.Hour)
				c.want(want)
				if c.asked() > 0 {
					t.Error("the CA was asked")
				}
			})
		})
	}
}

func TestEmptyOrganizationIsAllowedInASubject(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		r := honest()
		named(func(t *x509.CertificateRequest) { t.Subject.Organization = []string{""} })(r)
		c.create(r)
		c.want("Approved issued")
		if c.asked() != 1 {
			t.Errorf("the CA was asked %d times", c.asked())
		}
	})
}

// An approval does not overrule the policy.
func TestAttackersWhoWereApprovedFail(t *testing.T) {
	for name, test := range attackers {
		t.Run(name, func(t *testing.T) {
			inCluster(t, byHand, func(c *cluster) {
				r := honest()
				test.change(r)
				c.create(r)
				c.say("req-1", certificatesv1.CertificateApproved)
				c.want("Approved Failed " + test.reason)
				if lines := c.audit.Refusals(c.t); lines != 1 {
					c.t.Errorf("%d refusals in the audit log", lines)
				}
				if c.asked() > 0 {
					t.Error("the CA was asked")
				}
			})
		})
	}
}
