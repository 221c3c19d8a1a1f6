package ra_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const formerID = "spiffe://old.example/ns/{namespace}/sa/{serviceAccount}"

// uris is a CSR with these URIs.
func uris(texts ...string) []byte {
	template := &x509.CertificateRequest{}
	for _, text := range texts {
		uri, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	return csr(0, template)
}

// While a mesh moves to another trust domain, a caller gets the one ID or the other of its own, and
// never another workload's, whatever its CSR has.
func TestCSRChoosesAmongTheSPIFFEIDsOfItsSubject(t *testing.T) {
	const own, former = "spiffe://example.org/ns/shop/sa/web", "spiffe://old.example/ns/shop/sa/web"
	for name, c := range map[string]struct {
		csr  []byte
		want string
	}{
		"none":                       {empty(0), own},
		"the rule's":                 {uris(own), own},
		"the former one":             {uris(former), former},
		"another namespace's":        {uris("spiffe://old.example/ns/bank/sa/web"), own},
		"another account's":          {uris("spiffe://old.example/ns/shop/sa/api"), own},
		"a third trust domain":       {uris("spiffe://third.example/ns/shop/sa/web"), own},
		"the template":               {uris("spiffe://old.example/ns/%7Bnamespace%7D/sa/%7BserviceAccount%7D"), own},
		"a path below":               {uris(former + "/admin"), own},
		"a path that climbs":         {uris("spiffe://old.example/ns/bank/../shop/sa/web"), own},
		"a trust domain in capitals": {uris("spiffe://OLD.example/ns/shop/sa/web"), own},
		"a query":                    {uris(former + "?x"), own},
		"a fragment":                 {uris(former + "#x"), own},
		"a port":                     {uris("spiffe://old.example:443/ns/shop/sa/web"), own},
		"both":                       {uris(own, former), own},
		"the former one twice":       {uris(former, former), own},
	} {
		t.Run(name, func(t *testing.T) {
			rule := mesh()
			rule.Names.Requested = []string{formerID}
			inBubble(t, func(conf *ra.Config) { conf.Policy = policy(t, rule) }, func(h *house) {
				req := request()
				req.Door, req.CSR = istio, c.csr
				cert := h.must(req)
				if got := cert.Identity.Names(); !slices.Equal(got, []string{c.want}) {
					t.Errorf("issued to %q, want %q", got, c.want)
				}
			})
		})
	}
}

// Once the former trust domain is no longer allowed, a CSR that still has it gets the rule's ID, also
// one that waits.
func TestFormerTrustDomainThatThePolicyLosesIsNotIssued(t *testing.T) {
	rule := mesh()
	rule.Names.Requested = []string{formerID}
	inBubble(t, func(conf *ra.Config) { conf.Policy = policy(t, rule) }, func(h *house) {
		req := request()
		req.Door, req.CSR = istio, uris("spiffe://old.example/ns/shop/sa/web")
		o := h.prepare(req)
		if err := h.SetPolicy(policy(t, mesh())); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Issue(t.Context(), o); !errors.Is(err, ca.ErrAborted) {
			t.Errorf("got %v", err)
		}
		if got := h.must(req).Identity.String(); got != "spiffe://example.org/ns/shop/sa/web" {
			t.Errorf("issued to %q", got)
		}
	})
}

func TestIPAddressesOfACSRNeedTheRulesLeave(t *testing.T) {
	for name, c := range map[string]struct {
		allowed []string
		address string
		good    bool
	}{
		"none is allowed":    {nil, "10.1.2.3", false},
		"that address":       {[]string{"127.0.0.1"}, "127.0.0.1", true},
		"another address":    {[]string{"127.0.0.1"}, "127.0.0.2", false},
		"one of a network":   {[]string{"10.1.0.0/16"}, "10.1.2.3", true},
		"one beside it":      {[]string{"10.1.0.0/16"}, "10.2.0.1", false},
		"one of IPv6":        {[]string{"fd00::/8"}, "fd00::1", true},
		"IPv4 as IPv6":       {[]string{"10.1.0.0/16"}, "::ffff:10.1.2.3", true},
		"IPv6 for IPv4":      {[]string{"0.0.0.0/0"}, "fd00::1", false},
		"beside a DNS name":  {[]string{"*.apps.example.org", "10.1.0.0/16"}, "10.1.2.3", true},
		"a DNS name's label": {[]string{"*.apps.example.org"}, "10.1.2.3", false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(conf *ra.Config) { conf.Policy = policy(t, asking(c.allowed...)) }, func(h *house) {
				req := request()
				req.NamesOfCSR = true
				req.CSR = csr(0, &x509.CertificateRequest{DNSNames: []string{"web.example.org"}, IPAddresses: []net.IP{net.ParseIP(c.address)}})
				if c.good {
					if got := h.must(req).Identity.IPAddresses; len(got) != 1 {
						t.Errorf("issued to %v", got)
					}
					return
				}
				if err := h.refused(req, ca.ErrDenied); !errors.Is(err, ra.ErrNames) || !strings.Contains(err.Error(), c.address) {
					t.Errorf("the refusal does not name the address: %v", err)
				}
			})
		})
	}
}

func TestRequestedNamesOfOtherKindsThatAreRefused(t *testing.T) {
	for _, pattern := range []string{
		"spiffe://old.example/ns/{namespace}/sa/web", "spiffe://old.example/all", "spiffe://old.example/ns/{namespace}/sa/*", "spiffe://{namespace}/ns/x", "spiffe://old.example/", "spiffe://*/ns/{namespace}/sa/{serviceAccount}",
		"spiffe://old.example/ns/{nobody}", "https://example.org/x", "10.1.0.0/99", "10.1.*.1", "fe80::1%eth0", "web@example.org", "",
	} {
		if _, err := ra.NewPolicy("home", []ra.Rule{asking(pattern)}); err == nil {
			t.Errorf("%q is accepted", pattern)
		}
	}
}

// What no rule can grant is named in the refusal.
func TestRefusalsNameWhatNoRuleCanGrant(t *testing.T) {
	principal, _ := asn1.Marshal(asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 20, 2, 3})
	for want, template := range map[string]*x509.CertificateRequest{
		`the e-mail address "root@example.org"`:        {EmailAddresses: []string{"root@example.org"}},
		"the otherName of type 1.3.6.1.4.1.311.20.2.3": altName(asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: principal}),
		"the directoryName;":                           altName(asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 4, IsCompound: true, Bytes: []byte{0x30, 0}}),
		"the registeredID;":                            altName(asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 8, Bytes: []byte{42}}),
	} {
		inBubble(t, nil, func(h *house) {
			req := request()
			req.CSR = csr(0, template)
			if err := h.refused(req, ca.ErrInvalid); !errors.Is(err, ra.ErrNames) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// altName is a CSR with a name that crypto/x509 cannot express.
func altName(name asn1.RawValue) *x509.CertificateRequest {
	value, err := asn1.Marshal([]asn1.RawValue{name})
	if err != nil {
		panic(err)
	}
	return &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: value}}}
}
