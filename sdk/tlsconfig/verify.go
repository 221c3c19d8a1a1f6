package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Verifier verifies peers against the current roots. [Server] and [Client] use one; make
// your own with [NewVerifier] for another tls.Config. It is safe for concurrent use.
type Verifier struct {
	roots *bundle
	peer  Authorizer
	as    role
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
// Roots and Peer of the options.
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
	return &Verifier{newBundle(o), o.Peer, as}, nil
}

// Roots returns the current roots: the same pointer until they change. The error is an
// [*Error].
func (v *Verifier) Roots() (*pki.Bundle, error) {
	r, err := v.roots.get()
	if err != nil {
		return nil, err
	}
	return r.bundle, nil
}

// signsOthers are the usages that a leaf must not have (X509-SVID, section 5.2).
const signsOthers = x509.KeyUsageCertSign | x509.KeyUsageCRLSign

// VerifyConnection is for [tls.Config.VerifyConnection]. The peer's chain must lead to the
// current roots, its leaf must not be a CA and must fit its role, and the authorizer must
// admit it. Resumed sessions must pass as well. The error is an [*Error].
func (v *Verifier) VerifyConnection(state tls.ConnectionState) error {
	held, err := v.roots.get()
	if err != nil {
		return err
	}
	if len(state.PeerCertificates) == 0 {
		return &Error{Reason: ErrUntrusted, Expected: "a certificate of the " + v.as.peer, Seen: "none"}
	}
	leaf := state.PeerCertificates[0]
	if leaf.IsCA || leaf.KeyUsage&signsOthers != 0 {
		return &Error{Reason: ErrUntrusted, Expected: "a leaf, which may sign no certificates or revocation lists", Seen: describe(leaf)}
	}
	chain, err := held.verify(state.PeerCertificates, v.as.usage)
	if err != nil {
		return v.untrusted(held, leaf, err)
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
