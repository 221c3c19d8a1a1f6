// Package tlsconfig makes TLS configurations whose certificate and roots come from
// a [secret.Source] and follow each rotation: call [Server] or [Client] with
// [Options]. Sub-packages put them under gRPC (grpccreds) and net/http
// (httptransport).
//
// A configuration starts no goroutine and has nothing to close: each handshake asks
// the source, which is cheap, and parses what it holds once for each version. It
// never waits; call [secret.Get] first where the secrets may not be there yet. A
// connection, once made, is not touched by a rotation: it lives on with the
// certificates that it was made with, until one side closes it.
package tlsconfig

import (
	"crypto/tls"
	"errors"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// Options are what a configuration is made of.
type Options struct {
	// Source is where the secrets come from. Required.
	Source secret.Source
	// Caller is whom the source is asked for. Default: the agent itself.
	Caller secret.Caller
	// Certificate is the name of the key pair that is shown to the peer, as in
	// "default". Required of a server; a client without it shows none.
	Certificate string
	// Roots is the name of the trust bundle that the peer is verified with, as in
	// "ROOTCA", and Peer says which of the peers that it vouches for are the right
	// ones, as in [TrustDomain]. One needs the other. A client needs both; a server
	// without them asks for no certificate and answers everybody.
	Roots string
	Peer  Authorizer
	// Sessions is how many sessions a client keeps to resume. Default: 0, each
	// connection is a full handshake. A server hands out tickets always; see
	// [Server].
	Sessions int
}

// Server returns the configuration of a server: TLS 1.3, the certificate held now,
// and, where o.Peer is set, clients whose certificate leads to the roots held now and
// whom o.Peer admits. Both are looked at on resumed sessions, too.
//
// A ticket is good for as long as both the certificate and the roots are those that
// it was made under; the handshake is a full one after that, and fails only if
// that fails. None is good that was made in the first 30 s after a change.
//
// The configuration is the caller's: NextProtos and MinVersion, for one, may be
// set before it is used. It may be cloned and used by any number of listeners. Who
// replaces VerifyConnection or ClientAuth turns the verification off.
func Server(o Options) (*tls.Config, error) {
	if o.Certificate == "" {
		return nil, errors.New("tlsconfig: Options.Certificate is empty; a server needs the name of its key pair")
	}
	verifier, err := newVerifier(o, asServer)
	if err != nil {
		return nil, err
	}
	pair := newKeyPair(o)
	cfg := &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.get() },
	}
	if verifier != nil {
		// Verified in VerifyConnection, which runs on resumed sessions as well.
		cfg.ClientAuth = tls.RequireAnyClientCert
		cfg.VerifyConnection = verifier.VerifyConnection
	}
	(&tickets{cfg, versions{pair, verifier}}).hook()
	return cfg, nil
}

// Client returns the configuration of a client: TLS 1.3, a server whose certificate
// leads to the roots held now and that o.Peer admits, on resumed sessions, too, and,
// where o.Certificate is set, the certificate held now.
//
// A session is resumed only while both the certificate and the roots are those that
// it was made under, and not if it was made in the first 30 s after a change.
//
// The configuration is the caller's, as that of [Server]. Its InsecureSkipVerify
// is set, as the roots of a tls.Config cannot follow a rotation: VerifyConnection
// does all the verifying, and who replaces it turns the verification off.
func Client(o Options) (*tls.Config, error) {
	verifier, err := NewVerifier(o)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // #nosec G402 -- VerifyConnection verifies
		VerifyConnection:   verifier.VerifyConnection,
	}
	following := versions{roots: verifier}
	if o.Certificate != "" {
		pair := newKeyPair(o)
		following.pair = pair
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.get() }
	}
	if o.Sessions > 0 {
		cfg.ClientSessionCache = &sessions{tls.NewLRUClientSessionCache(o.Sessions), following}
	}
	return cfg, nil
}
