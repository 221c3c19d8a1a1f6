// Package pki implements the X.509 that Countersign needs: keys, CSRs, PEM encoding, the
// check of a CA's reply ([Check.Chain]) and the trust [Bundle]. It uses the standard
// library only and bounds the size and count of everything it parses, as input may come
// from strangers.
//
// All functions are safe for concurrent use and neither keep nor modify their arguments;
// the package has no state. An error has what was found and what is allowed, and never
// quotes a key.
package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// maxNames bounds the names of one identity.
const maxNames = 100

// Identity is the set of names in a certificate: a SPIFFE ID, DNS names and IP addresses,
// at least one of them. The zero value has no names. An Identity must not be modified once
// made; it is then safe for concurrent use.
type Identity struct {
	SPIFFEID    *url.URL // SPIFFE-ID standard, section 2; nil if there is none
	DNSNames    []string // lower case, sorted
	IPAddresses []netip.Addr
}

// NewIdentity validates the names and returns their Identity. spiffeID is as in
// [ParseSPIFFEID], or empty. The first label of a DNS name may be "*". ips are IPv4 and
// IPv6 addresses without a zone. Together they may be 100 at most. The error names the
// first invalid one.
func NewIdentity(spiffeID string, dnsNames, ips []string) (Identity, error) {
	var id Identity
	if spiffeID != "" {
		u, err := ParseSPIFFEID(spiffeID)
		if err != nil {
			return Identity{}, err
		}
		id.SPIFFEID = u
	}
	for _, name := range dnsNames {
		if _, err := netip.ParseAddr(name); err == nil {
			return Identity{}, fmt.Errorf("DNS name %.256q is not valid: it is an IP address, which no client matches as a DNS name; write it in ip_addresses", name)
		}
		if !validDNSName(name) {
			return Identity{}, fmt.Errorf("DNS name %.256q is not valid: use letters, digits, '-' and '.', a leading '*.' at most", name)
		}
		id.DNSNames = append(id.DNSNames, strings.ToLower(name))
	}
	for _, text := range ips {
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.Zone() != "" {
			return Identity{}, fmt.Errorf("IP address %.256q is not valid: use an IPv4 or IPv6 address without a zone", text)
		}
		id.IPAddresses = append(id.IPAddresses, ip.Unmap())
	}
	return id.normal()
}

// RequestedIdentity returns the names that a ca.SignRequest spells out; one at least. Beside
// a provider that certifies them, these count, not those of its CSR.
func RequestedIdentity(subjectID string, dnsNames []string, addresses []netip.Addr) (Identity, error) {
	ips := make([]string, len(addresses))
	for i, address := range addresses {
		ips[i] = address.String()
	}
	id, err := NewIdentity(subjectID, dnsNames, ips)
	if err == nil && id.IsZero() {
		err = errors.New("it has no names: want a SPIFFE ID, a DNS name or an IP address")
	}
	return id, err
}

// normal sorts the names, so that identities with the same names are equal.
func (id Identity) normal() (Identity, error) {
	if len(id.DNSNames)+len(id.IPAddresses) > maxNames {
		return Identity{}, fmt.Errorf("%d names are too many: an identity has %d at most", len(id.DNSNames)+len(id.IPAddresses), maxNames)
	}
	slices.Sort(id.DNSNames)
	slices.SortFunc(id.IPAddresses, netip.Addr.Compare)
	id.DNSNames = slices.Compact(id.DNSNames)
	id.IPAddresses = slices.Compact(id.IPAddresses)
	return id, nil
}

// IdentityOf returns the names of a certificate. It rejects more than one URI, a URI that
// is not a SPIFFE ID to the letter (X509-SVID standard, section 2), and names of other kinds.
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	if err := checkNameForms(cert.Extensions); err != nil {
		return Identity{}, err
	}
	return shownIdentity(cert)
}

// shownIdentity is IdentityOf that passes over kinds of names that crypto/x509 does not show.
func shownIdentity(cert *x509.Certificate) (Identity, error) {
	return identityOf(uriTexts(cert.Extensions, cert.URIs), cert.DNSNames, cert.IPAddresses, cert.EmailAddresses)
}

// AllNames returns every name that a client may read in a certificate, valid or not, in the
// form of [Identity.Names]. The common name counts, as some clients read a DNS name there.
func AllNames(cert *x509.Certificate) []string {
	var names []string
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	for _, name := range append(slices.Clone(cert.DNSNames), cert.Subject.CommonName) {
		names = append(names, strings.ToLower(strings.TrimSuffix(name, ".")))
	}
	for _, ip := range cert.IPAddresses {
		if addr, ok := netip.AddrFromSlice(ip); ok {
			names = append(names, addr.Unmap().String())
		}
	}
	return names
}

// IdentityOfCSR returns the names of a CSR, by the rules of [IdentityOf].
func IdentityOfCSR(csr *x509.CertificateRequest) (Identity, error) {
	if err := checkNameForms(csr.Extensions); err != nil {
		return Identity{}, err
	}
	return identityOf(uriTexts(csr.Extensions, csr.URIs), csr.DNSNames, csr.IPAddresses, csr.EmailAddresses)
}

func identityOf(uris, dnsNames []string, ips []net.IP, emails []string) (Identity, error) {
	var spiffeID string
	switch {
	case len(emails) > 0:
		return Identity{}, errors.New("it names an e-mail address; only a SPIFFE ID, DNS names and IP addresses are allowed")
	case len(uris) > 1:
		return Identity{}, fmt.Errorf("it names %d URIs; one SPIFFE ID is allowed", len(uris))
	case len(uris) == 1:
		spiffeID = uris[0]
	}
	texts := make([]string, len(ips))
	for i, ip := range ips {
		texts[i] = ip.String()
	}
	return NewIdentity(spiffeID, dnsNames, texts)
}

// Equal reports whether both identities have the same names, in any order.
func (id Identity) Equal(other Identity) bool {
	return id.spiffeID() == other.spiffeID() &&
		slices.Equal(id.DNSNames, other.DNSNames) && slices.Equal(id.IPAddresses, other.IPAddresses)
}

// has reports whether name is one of the names; DNS names in any case.
func (id Identity) has(name string) bool {
	return slices.Contains(id.Names(), name) || slices.Contains(id.DNSNames, strings.ToLower(name))
}

// IsZero reports whether the identity has no names.
func (id Identity) IsZero() bool {
	return id.SPIFFEID == nil && len(id.DNSNames) == 0 && len(id.IPAddresses) == 0
}

// TrustDomain returns the trust domain of the SPIFFE ID, or "".
func (id Identity) TrustDomain() string {
	if id.SPIFFEID == nil {
		return ""
	}
	return id.SPIFFEID.Host
}

// String returns the names, joined by ", ".
func (id Identity) String() string {
	return strings.Join(id.Names(), ", ")
}

// Names returns all names as text: the SPIFFE ID, then DNS names, then IP addresses.
func (id Identity) Names() []string {
	var names []string
	if id.SPIFFEID != nil {
		names = append(names, id.spiffeID())
	}
	names = append(names, id.DNSNames...)
	for _, ip := range id.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

func (id Identity) spiffeID() string {
	if id.SPIFFEID == nil {
		return ""
	}
	return id.SPIFFEID.String()
}

func validDNSName(name string) bool {
	name = strings.TrimPrefix(name, "*.")
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || !onlyOf(label, dnsLabel) {
			return false
		}
	}
	return true
}

func dnsLabel(c byte) bool { return isLower(c) || isUpper(c) || isDigit(c) || c == '-' || c == '_' }
func isLower(c byte) bool  { return 'a' <= c && c <= 'z' }
func isUpper(c byte) bool  { return 'A' <= c && c <= 'Z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

func onlyOf(s string, allowed func(byte) bool) bool {
	for i := range len(s) {
		if !allowed(s[i]) {
			return false
		}
	}
	return true
}
