package acmeca

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// name is an identifier (RFC 8555, section 9.7.7; RFC 8738).
type name struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

const (
	dnsName   = "dns"
	ipAddress = "ip"
	wildcard  = "*."
)

// asked is what a request asks for.
type asked struct {
	names pki.Identity
	csr   []byte // DER
	key   any    // public
}

// asks checks a request. ACME certifies DNS names and IP addresses, those of the CSR.
func (s Settings) asks(req ca.SignRequest) (asked, error) {
	if req.SubjectID != "" {
		return asked{}, ca.Errorf(ca.Invalid, "the request is for %.256q: ACME certifies DNS names and IP addresses, no SPIFFE IDs", req.SubjectID)
	}
	names, err := pki.RequestedIdentity("", req.DNSNames, req.IPAddresses)
	if err != nil {
		return asked{}, ca.Errorf(ca.Invalid, "the request: %w", err)
	}
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return asked{}, ca.Errorf(ca.Invalid, "the CSR: %w", err)
	}
	own, err := pki.IdentityOfCSR(csr)
	if err != nil {
		return asked{}, ca.Errorf(ca.Invalid, "the CSR: %w", err)
	}
	common := csr.Subject.CommonName
	if own.SPIFFEID != nil || !own.Equal(names) || common != "" && !slices.Contains(names.Names(), strings.ToLower(common)) {
		return asked{}, ca.Errorf(ca.Invalid, "the CSR has other names than the request, and ACME certifies those of the CSR")
	}
	return asked{names, csr.Raw, csr.PublicKey}, s.provable(names)
}

// provable reports whether the configured challenge proves these names.
func (s Settings) provable(names pki.Identity) error {
	for _, dns := range names.DNSNames {
		if strings.HasPrefix(dns, wildcard) && s.challenge() != DNS01 {
			return ca.Errorf(ca.Invalid, "%q is a wildcard: only dns-01 proves it, and challenge is %s", dns, s.challenge())
		}
	}
	if len(names.IPAddresses) > 0 && s.challenge() == DNS01 {
		return ca.Errorf(ca.Invalid, "%s is an IP address: dns-01 does not prove it, http-01 and tls-alpn-01 do", names.IPAddresses[0])
	}
	return nil
}

// identifiers are the names as an order has them.
func identifiers(names pki.Identity) []name {
	var list []name
	for _, dns := range names.DNSNames {
		list = append(list, name{dnsName, dns})
	}
	for _, ip := range names.IPAddresses {
		list = append(list, name{ipAddress, ip.String()})
	}
	return list
}

// same reports whether two lists have the same names, in any order.
func same(a, b []name) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(one name) bool { return !slices.ContainsFunc(b, one.is) })
}

func (n name) is(other name) bool {
	if n.Type != other.Type {
		return false
	}
	if n.Type != ipAddress {
		return strings.EqualFold(n.Value, other.Value)
	}
	a, err := netip.ParseAddr(n.Value)
	b, wrong := netip.ParseAddr(other.Value)
	return err == nil && wrong == nil && a.Unmap() == b.Unmap()
}
