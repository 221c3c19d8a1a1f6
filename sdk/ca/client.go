// Package ca defines the contract between Countersign and a certificate authority.
// Implement [Client] to add a CA; call [Client.CSRSign] to use one.
//
// The package imports the standard library only and holds no state. A CA offers
// optional abilities through further small interfaces, found by type assertion:
// [RootSource], [RootWatcher], [TokenExchanger], [NameCertifier], [RenewalAdvisor],
// [RevocationSource], [JWTSigner], [WITSigner] and [io.Closer]. They are the same in process and across the boundary to a provider process; a client that crosses the
// boundary has all methods and returns [ErrUnimplemented] for a missing ability.
package ca

import (
	"context"
	"net/netip"
	"time"
)

// Client is a certificate authority as the agent sees it.
//
// A Client is safe for concurrent use.
type Client interface {
	// CSRSign asks the authority to sign req.CSR.
	//
	// It returns when the authority issues the certificate or refuses, or when ctx
	// ends. A failure that the caller can act on is (or wraps) an [*Error]; [ActionFor]
	// returns what to do about any error. A call that repeats an ID is a retry with the
	// same CSR bytes; the authority may answer it with the certificate it issued for
	// the earlier call.
	CSRSign(ctx context.Context, req SignRequest) (Certificate, error)
}

// SignRequest asks an authority for a certificate. The callee must not keep or modify
// its slices.
type SignRequest struct {
	// ID is a UUID (RFC 9562). A retry sends the same ID and CSR; a new key gets a new
	// ID. This lets an authority recognize a repeat.
	ID string
	// CSR is one PKCS #10 request in PEM ("CERTIFICATE REQUEST", RFC 7468).
	CSR []byte
	// SubjectID is the requested SPIFFE ID; empty if there is none.
	SubjectID string
	// DNSNames and IPAddresses are the further requested names, for authorities that
	// certify names. They and SubjectID repeat the names in the CSR; for a
	// [NameCertifier] they take their place.
	DNSNames    []string
	IPAddresses []netip.Addr
	// TTL is the requested lifetime; zero leaves it to the authority. The leaf's
	// NotAfter is what counts.
	TTL time.Duration
	// Token is the caller's bearer credential; it may be empty.
	Token Token
	// Requester describes who asks, for the authority's audit log, such as "pod
	// cluster/namespace/name"; it may be empty. It is information, no credential: an
	// authority decides nothing by it. Over the boundary to a provider process, it is cut to
	// 256 bytes, escaped, and the token is removed from it.
	Requester string
}

// Certificate is an authority's reply. The caller may keep it and must not modify it.
type Certificate struct {
	// Chain is PEM: the leaf first, then each certificate's issuer, never the root.
	Chain []byte
	// Roots is PEM: the self-signed certificates that Chain leads to; empty if the
	// authority publishes its roots only through [RootSource].
	Roots []byte
	// Signer identifies who answered, such as "file 1.2.0", for logs and pages. The host that
	// runs the provider sets it; it does not cross the boundary.
	Signer string
	// Facts are those of the provider that answered. The host sets them like Signer.
	Facts Facts
}

// RootSource is an authority that returns its roots without signing anything. It is
// safe for concurrent use.
type RootSource interface {
	// Roots returns the current roots in PEM, at least one.
	Roots(ctx context.Context) ([]byte, error)
}

// RootWatcher is an authority that reports its roots as they change, independent of
// signing. It is safe for concurrent use.
type RootWatcher interface {
	// WatchRoots calls changed with the current roots (PEM) and then with each later
	// set, one call at a time. It returns when ctx ends, when changed returns an error
	// (that error), or when the watch breaks; the caller then watches again.
	WatchRoots(ctx context.Context, changed func(roots []byte) error) error
}

// NameCertifier is an authority that certifies the names and the lifetime of the request,
// not those of the CSR. From its CSRSign, a certificate has SubjectID, DNSNames and
// IPAddresses, all of them and no other name; of the CSR, which may have no names or
// others, only the key is used. A request without names is [ErrInvalid]. It is safe for
// concurrent use.
type NameCertifier interface {
	// CertifiesNames returns nil if the authority does so, [ErrUnimplemented] if it never
	// does, [ErrInvalid] if its settings do not allow it, and another error if it cannot
	// check it now. It signs nothing.
	//
	// Across the boundary to a provider process, its metadata answer, which know no
	// settings: where those do not allow it, CSRSign refuses the request as [ErrInvalid]
	// or [ErrDenied].
	CertifiesNames(ctx context.Context) error
}

// RenewalAdvisor is an authority that advises when to renew a certificate: ACME's
// renewal information (RFC 9773). It is safe for concurrent use.
type RenewalAdvisor interface {
	// RenewalInfo returns the advice for a leaf of this authority: one PEM block
	// "CERTIFICATE". It signs nothing. A certificate that the authority does not know is
	// [ErrInvalid].
	RenewalInfo(ctx context.Context, leaf []byte) (RenewalInfo, error)
}

// RenewalInfo is an authority's advice on one certificate. The caller bounds what it does
// with it: no advice keeps a certificate until it expires, and none has it renewed over and
// over.
type RenewalInfo struct {
	// Start and End are the window to renew in; the moment is drawn uniformly between.
	// A window in the past means now. End is after Start.
	Start, End time.Time
	// Explanation is the URL of a page with the reason, of at most 2,048 bytes; it may be empty.
	Explanation string
	// RetryAfter is when to ask again; zero leaves it to the caller.
	RetryAfter time.Duration
}

// RevocationSource is an authority that publishes revocation lists (RFC 5280, section 5). It is
// safe for concurrent use.
type RevocationSource interface {
	// Revocations returns the newest list of each CA that the authority signs with: PEM blocks
	// "X509 CRL", at least one and 3 MiB at most. CAs among them ("CERTIFICATE") signed one
	// and are not roots. It makes no new list unless the last one is about to end.
	Revocations(ctx context.Context) ([]byte, error)
}

// JWTSigner is an authority that signs JWT-SVIDs (the JWT-SVID standard of SPIFFE). It is
// safe for concurrent use.
type JWTSigner interface {
	// SignJWT returns a JWT-SVID in compact form, at most 16 KiB: the subject and exactly the
	// audiences of the request, and no longer a life. Its header names one of the published
	// keys. Errors are those of [Client].CSRSign.
	SignJWT(ctx context.Context, req JWTRequest) (Token, error)
	// WatchJWTKeys calls changed with the public keys, a JWK set (RFC 7517, section 5), and
	// then with each later set, one call at a time. A key is published before it signs, and
	// until the last token that it signed has expired. WatchJWTKeys ends as
	// [RootWatcher].WatchRoots does.
	WatchJWTKeys(ctx context.Context, changed func(jwks []byte) error) error
}

// JWTRequest asks an authority for a JWT-SVID. All but Token is required. The callee must
// not keep or modify its slice.
type JWTRequest struct {
	// ID is a UUID. A retry sends the same one.
	ID string
	// SubjectID is the SPIFFE ID for the claim sub.
	SubjectID string
	// Audiences are the claim aud.
	Audiences []string
	// TTL is the requested lifetime; the authority may give less.
	TTL time.Duration
	// Token is the caller's bearer credential; it may be empty.
	Token Token
}

// WITSigner is an authority that signs WIT-SVIDs: tokens that bind a SPIFFE ID to a workload's
// public key, and that count only together with a proof of possession of the private key. It is
// safe for concurrent use.
//
// Experimental. The standard is a draft: standards/WIT-SVID.md on the experimental branch of
// github.com/spiffe/spiffe, commit 01b3a1ee, over draft-ietf-wimse-workload-creds-02.
type WITSigner interface {
	// SignWIT returns a WIT-SVID in compact form, at most 16 KiB. Its header has typ "wit+jwt",
	// one of the algorithms RS, PS and ES with 256, 384 and 512, and as kid one of the published
	// keys. Its claims are sub and exp, no later than asked for, cnf with nothing but jwk, the
	// request's public key, and no aud. Errors are those of [Client].CSRSign.
	SignWIT(ctx context.Context, req WITRequest) (Token, error)
	// WatchWITKeys calls changed as [JWTSigner].WatchJWTKeys does. Each key has "use":"wit-svid"
	// and a kid of its own. None is a key that signs JWT-SVIDs or has the kid of one.
	WatchWITKeys(ctx context.Context, changed func(jwks []byte) error) error
}

// WITRequest asks an authority for a WIT-SVID. All but Token is required. The callee must
// not keep or modify its slice.
//
// Experimental, as [WITSigner].
type WITRequest struct {
	// ID is a UUID. A retry sends the same one and the same key.
	ID string
	// SubjectID is the SPIFFE ID for the claim sub.
	SubjectID string
	// PublicKey is the workload's key for the claim cnf.jwk: a JWK (RFC 7517) in JSON of at most
	// 2,048 bytes that has kty, alg and the public numbers of an EC or RSA key, and no other
	// member. Its alg, RS, PS or ES with 256, 384 or 512, is the algorithm of the workload's
	// proofs. A request proves nothing about the private key: the caller vouches for it.
	PublicKey []byte
	// TTL is the requested lifetime; the authority may give less.
	TTL time.Duration
	// Token is the caller's bearer credential; it may be empty.
	Token Token
}

// TokenExchanger is the token-exchange hook: it exchanges the workload's token for one
// that the authority accepts (RFC 8693, section 2). It is safe for concurrent use.
type TokenExchanger interface {
	ExchangeToken(ctx context.Context, req TokenRequest) (ExchangedToken, error)
}

// TokenRequest names the token to exchange and describes the token wanted. The
// exchanger chooses the value of an empty field.
type TokenRequest struct {
	SubjectToken     Token
	SubjectTokenType string // a URN of RFC 8693, section 3
	Audience         string
	Resource         string
	Scopes           []string
	RequestedType    string // a URN of RFC 8693, section 3
}

// ExchangedToken is the reply to a [TokenRequest].
type ExchangedToken struct {
	AccessToken Token
	IssuedType  string    // a URN of RFC 8693, section 3
	Expiry      time.Time // zero if unknown
}
