package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Verifier verifies peers against the current roots. [Server] and [Client] use one; make
// your own with [NewVerifier] for another tls.Config. It is safe for concurrent use.
type Verifier struct {
	roots     *bundle
	federated map[string]*bundle // by trust domain
	peer      Authorizer
	as        role
}

// role is the verifier's side of the connection, which decides the key usage that the
// peer's certificate needs.
type role struct {
	peer  string
	usage x509.ExtKeyUsage
}

var (
	asServer = role{"client", x509.ExtKeyUsageClientAuth}
	asClient = role{"server", x509.ExtKeyUsageServerAuth}
)

// NewVerifier returns a client's verifier, which verifies servers. It uses Source, Caller,
// Roots, Federated and Peer of the options.
func NewVerifier(o Options) (*Verifier, error) {
	v, err := newVerifier(o, asClient)
	if err == nil && v == nil {
		err = errors.New("tlsconfig: Options.Roots and Options.Peer are empty; a client needs to know its server")
	}
	return v, err
}

// newVerifier returns nil if the options ask for no verification.
func newVerifier(o Options, as role) (*Verifier, error) {
	switch {
	case o.Source == nil:
		return nil, errors.New("tlsconfig: Options.Source is nil; name where the secrets come from")
	case o.Roots == "" && o.Peer == nil:
		return nil, nil
	case o.Roots == "":
		return nil, errors.New("tlsconfig: Options.Peer is set and Options.Roots is empty; name the trust bundle that vouches for the peer")
	case o.Peer == nil:
		return nil, errors.New("tlsconfig: Options.Roots is set and Options.Peer is nil; say which peers are the right ones, as in TrustDomain")
	}
	v := &Verifier{newBundle(o, o.Roots), make(map[string]*bundle), o.Peer, as}
	for domain, name := range o.Federated {
		if err := pki.CheckTrustDomain(domain); err != nil {
			return nil, fmt.Errorf("tlsconfig: Options.Federated: %w", err)
		}
		v.federated[domain] = newBundle(o, name)
	}
	return v, nil
}

// bundleFor returns what verifies a peer: a CA vouches for its own trust domain only.
func (v *Verifier) bundleFor(leaf *x509.Certificate) *bundle {
	if len(leaf.URIs) == 1 && leaf.URIs[0].Scheme == "spiffe" {
		if b := v.federated[leaf.URIs[0].Host]; b != nil {
			return b
		}
	}
	return v.roots
}

// version identifies all bundles, with the time of the last change; empty without Roots.
func (v *Verifier) version() (version string, since time.Time) {
	version, since = v.roots.version()
	if version == "" {
		return "", since
	}
	for _, domain := range slices.Sorted(maps.Keys(v.federated)) {
		other, changed := v.federated[domain].version() // a missing one verifies no peer
		version += " " + other
		if changed.After(since) {
			since = changed
		}
	}
	return version, since
}

// Roots returns the current roots of Options.Roots: the same pointer until they change. The error is an
// [*Error].
func (v *Verifier) Roots() (*pki.Bundle, error) {
	r, err := v.roots.get()
	if err != nil {
		return nil, err
	}
	return r.bundle, nil
}

// FederatedRoots returns the current roots of a trust domain in Options.Federated, as Roots does. For any other
// trust domain, which has none, it returns nil.
func (v *Verifier) FederatedRoots(trustDomain string) (*pki.Bundle, error) {
	from := v.federated[trustDomain]
	if from == nil {
		return nil, nil
	}
	r, err := from.get()
	if err != nil {
		return nil, err
	}
	return r.bundle, nil
}

// signsOthers are the usages that a leaf must not have (X509-SVID, section 5.2).
const signsOthers = x509.KeyUsageCertSign | x509.KeyUsageCRLSign

// VerifyConnection is for [tls.Config.VerifyConnection]. The peer's chain must lead to the
// current roots, nothing on it may be revoked, its leaf must not be a CA and must fit its role, and the authorizer must
// admit it. Resumed sessions must pass as well. The error is an [*Error].
func (v *Verifier) VerifyConnection(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return &Error{Reason: ErrUntrusted, Expected: "a certificate of the " + v.as.peer, Seen: "none"}
	}
	leaf := state.PeerCertificates[0]
	from := v.bundleFor(leaf)
	held, err := from.get()
	if err != nil {
		return err
	}
	if leaf.IsCA || leaf.KeyUsage&signsOthers != 0 {
		return &Error{Reason: ErrUntrusted, Expected: "a leaf, which may sign no certificates or revocation lists", Seen: describe(leaf)}
	}
	chain, err := held.verify(state.PeerCertificates, v.as.usage)
	switch {
	case errors.Is(err, pki.ErrRevoked), errors.Is(err, pki.ErrNoCRL):
		return &Error{Reason: ErrRevoked, Expected: fmt.Sprintf("a certificate that the revocation lists of %.256q admit", from.name), Seen: describe(leaf), Err: err}
	case err != nil:
		return v.untrusted(from.name, held, leaf, err)
	}
	return v.authorize(Peer{Chain: chain, ServerName: state.ServerName})
}

func (v *Verifier) authorize(p Peer) error {
	err := v.peer(p)
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	return &Error{Reason: ErrRefused, Expected: "a peer that the authorizer admits", Seen: describe(p.Leaf()), Err: err}
}
