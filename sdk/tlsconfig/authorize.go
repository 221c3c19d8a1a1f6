package tlsconfig

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Peer is the other side of a connection, with verified certificates.
type Peer struct {
	// Chain is the leaf, intermediates and the root they lead to. It is shared: do not
	// modify it.
	Chain []*x509.Certificate
	// ServerName is the DNS name that the client requested (SNI); empty if it requested an
	// IP address or nothing.
	ServerName string
}

// Leaf returns the peer's own certificate.
func (p Peer) Leaf() *x509.Certificate { return p.Chain[0] }

// SPIFFEID returns the peer's SPIFFE ID, such as "spiffe://example.org/web": the only URI
// of the leaf (X509-SVID standard, section 2). The error is an [*Error] with [ErrNoID].
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

// Authorizer decides whether to accept a verified peer; its error ends the handshake. It
// runs in each handshake, must be safe for concurrent use, and must not block.
type Authorizer func(Peer) error

// SPIFFEID accepts peers with one of these SPIFFE IDs. If one is malformed, every
// handshake fails.
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

// otherID returns ErrTrustDomain or ErrOtherName, depending on the peer's trust domain.
func otherID(want, id string, ids []string) error {
	reason := ErrOtherName
	same := func(other string) bool { return domainOf(other) == domainOf(id) }
	if !slices.ContainsFunc(ids, same) {
		reason = ErrTrustDomain
	}
	return &Error{Reason: reason, Expected: want, Seen: fmt.Sprintf("%.256q", id)}
}

// TrustDomain accepts peers with a SPIFFE ID in one of these trust domains, such as
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

// DNSName accepts peers whose certificate is valid for one of these DNS names or IP
// addresses. Wildcards in it work as in [x509.Certificate.VerifyHostname].
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

// ServerName accepts, in a client, a server whose certificate is valid for the dialed DNS
// name, as crypto/tls does by default. It rejects every server that was dialed by IP
// address, which TLS does not send; use [DNSName] for those.
func ServerName() Authorizer {
	return func(p Peer) error {
		if p.ServerName == "" {
			return &Error{Reason: ErrOtherName, Expected: "a DNS name that was dialled", Seen: "none"}
		}
		return DNSName(p.ServerName)(p)
	}
}

// impossible returns an authorizer that always fails, for invalid arguments.
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
