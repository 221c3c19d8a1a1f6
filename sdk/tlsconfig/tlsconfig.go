// Package tlsconfig makes TLS configurations whose certificate and roots come from a
// [secret.Source] and follow each rotation. Call [Server] or [Client] with [Options], or [ByServerName]
// for a server with many names. The
// subpackages grpccreds and httptransport apply them to gRPC and net/http.
//
// A configuration starts no goroutine and needs no Close. Each handshake asks the source,
// which is cheap; a lock guards the parsed form, made once per version. It never waits for
// a secret: call [secret.Get] first if the secrets may not be there yet. A rotation does
// not affect existing connections, which keep the certificates of their handshake.
package tlsconfig

import (
	"crypto/tls"
	"errors"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// Options configure [Server], [Client] and [NewVerifier].
type Options struct {
	// Source provides the secrets. Required.
	Source secret.Source
	// Caller is the caller to ask the source as. Default: the agent itself.
	Caller secret.Caller
	// Certificate is the name of the key pair to present, such as "default". Required for
	// a server; a client without it presents none.
	Certificate string
	// Roots is the name of the trust bundle that verifies the peer, such as "ROOTCA". Peer
	// selects the verified peers to accept, as [TrustDomain] does. Set both or neither. A
	// client needs both; a server without them requests no client certificate and accepts
	// every client.
	Roots string
	Peer  Authorizer
	// Federated maps other trust domains, such as "example.com", to the names of their
	// trust bundles. A peer with a SPIFFE ID of such a domain must chain to its bundle, and
	// no other peer may. Such a bundle's CA can sign any DNS name, too: Peer should look at SPIFFE
	// IDs, not at names alone, as [DNSName] and [ServerName] do. Default: none, Roots verifies
	// every peer.
	Federated map[string]string
	// Sessions is how many sessions a client caches for resumption. Default: 0, so each
	// connection makes a full handshake. A server always issues tickets; see [Server].
	Sessions int
}

// Server returns a server configuration: TLS 1.3 and the current certificate. If o.Peer is
// set, it accepts only clients whose certificate chains to the current roots and that
// o.Peer admits, on resumed sessions, too.
//
// A ticket is valid while the certificate and the roots are the same as when it was
// issued; after that the handshake is a full one. Tickets issued in the first 30 s after a
// change are never valid.
//
// The caller owns the configuration and may change NextProtos or MinVersion, for example,
// before using it. Clones and any number of listeners may share it. Replacing
// VerifyConnection or ClientAuth disables the verification.
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
		// VerifyConnection also runs on resumed sessions, so it verifies.
		cfg.ClientAuth = tls.RequireAnyClientCert
		cfg.VerifyConnection = verifier.VerifyConnection
	}
	(&tickets{cfg, versions{pair, verifier}}).hook()
	return cfg, nil
}

// Client returns a client configuration: TLS 1.3 and, if o.Certificate is set, the current
// certificate. It accepts only servers whose certificate chains to the current roots and
// that o.Peer admits, on resumed sessions, too.
//
// A session is resumed only while the certificate and the roots are those of its
// handshake, and never if it was made in the first 30 s after a change.
//
// The caller owns the configuration, as with [Server]. It sets InsecureSkipVerify because
// the roots of a tls.Config cannot follow a rotation: VerifyConnection does all the
// verification, and replacing it disables that.
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
