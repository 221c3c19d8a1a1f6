package tlsconfig

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Peer is who is at the other end, its certificates verified.
type Peer struct {
	// Chain is the leaf, intermediates and the root that they lead to; it is shared
	// and not to be changed.
	Chain []*x509.Certificate
	// ServerName is the DNS name that the client asked for (SNI); empty where it
	// asked for an address or for nothing.
	ServerName string
}

// Leaf returns the peer's own certificate.
func (p Peer) Leaf() *x509.Certificate { return p.Chain[0] }

// SPIFFEID returns the peer's SPIFFE ID, as in "spiffe://example.org/web"
// (X509-SVID standard, section 2: the only URI of the leaf). The error is an [*Error]
// that is [ErrNoID].
func (p Peer) SPIFFEID() (string, error) {
	id, err := p.spiffeID()
	if err != nil {
		return "", err.expecting("a SPIFFE ID")
	}
	return id, nil
}

func (p Peer) spiffeID() (string, *Error) {
	uris := p.Leaf().URIs
	if len(uris) != 1 {
		return "", &Error{Reason: ErrNoID, Seen: describe(p.Leaf())}
	}
	id := uris[0].String()
	if _, err := pki.ParseSPIFFEID(id); err != nil {
		return "", &Error{Reason: ErrNoID, Seen: fmt.Sprintf("%.256q", id), Err: err}
	}
	return id, nil
}

// Authorizer decides whether a peer that the roots vouch for is the right one. It is
// called in each handshake, by many goroutines at once, and must not block. Its error
// ends the handshake.
type Authorizer func(Peer) error

// SPIFFEID admits the peers of these SPIFFE IDs. One that is malformed is an error in
// each handshake.
func SPIFFEID(ids ...string) Authorizer {
	want := "the SPIFFE ID " + quoted(ids)
	for _, id := range ids {
		if _, err := pki.ParseSPIFFEID(id); err != nil {
			return impossible(err)
		}
	}
	return func(p Peer) error {
		id, err := p.spiffeID()
		switch {
		case err != nil:
			return err.expecting(want)
		case !slices.Contains(ids, id):
			return otherID(want, id, ids)
		}
		return nil
	}
}

// otherID tells a peer of another trust domain from one of another name.
func otherID(want, id string, ids []string) error {
	reason := ErrOtherName
	same := func(other string) bool { return domainOf(other) == domainOf(id) }
	if !slices.ContainsFunc(ids, same) {
		reason = ErrTrustDomain
	}
	return &Error{Reason: reason, Expected: want, Seen: fmt.Sprintf("%.256q", id)}
}

// TrustDomain admits the peers with a SPIFFE ID of one of these trust domains, as in
// "example.org".
func TrustDomain(names ...string) Authorizer {
	want := "a SPIFFE ID of the trust domain " + quoted(names)
	for _, name := range names {
		if err := pki.CheckTrustDomain(name); err != nil {
			return impossible(err)
		}
	}
	return func(p Peer) error {
		id, err := p.spiffeID()
		switch {
		case err != nil:
			return err.expecting(want)
		case !slices.Contains(names, domainOf(id)):
			return &Error{Reason: ErrTrustDomain, Expected: want, Seen: fmt.Sprintf("%.256q", id)}
		}
		return nil
	}
}

// DNSName admits the peers whose certificate is valid for one of these DNS names or IP
// addresses. A wildcard in it counts as in [x509.Certificate.VerifyHostname].
func DNSName(names ...string) Authorizer {
	want := "a certificate for " + quoted(names)
	return func(p Peer) error {
		for _, name := range names {
			if p.Leaf().VerifyHostname(name) == nil {
				return nil
			}
		}
		return &Error{Reason: ErrOtherName, Expected: want, Seen: describe(p.Leaf())}
	}
}

// ServerName admits, in a client, the server whose certificate is valid for the DNS
// name that was dialled: what crypto/tls does by itself. It admits nobody where an
// address was dialled, which TLS does not tell; use [DNSName] for those.
func ServerName() Authorizer {
	return func(p Peer) error {
		if p.ServerName == "" {
			return &Error{Reason: ErrOtherName, Expected: "a DNS name that was dialled", Seen: "none"}
		}
		return DNSName(p.ServerName)(p)
	}
}

// impossible is an authorizer that a mistake in its making leaves.
func impossible(err error) Authorizer {
	return func(p Peer) error {
		return &Error{Reason: ErrRefused, Expected: "names that a peer may have", Seen: describe(p.Leaf()), Err: err}
	}
}

// domainOf returns the trust domain of a valid SPIFFE ID.
func domainOf(id string) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(id, "spiffe://"), "/")
	return domain
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "of an empty list"
	}
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = fmt.Sprintf("%.256q", name)
	}
	return strings.Join(all, " or ")
}
