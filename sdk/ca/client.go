// Package ca is the contract between Countersign and a certificate authority:
// implement [Client] for a CA of your own, or call [Client.CSRSign] on one that
// somebody else implemented.
//
// The package uses the standard library only. What else a CA can do is said by
// further small interfaces, found by type assertion: [RootSource], [RootWatcher],
// [TokenExchanger] and [io.Closer]. They are the same inside one process and
// across the boundary to a provider process; a value that crosses the boundary
// has all the methods and answers [ErrUnimplemented] where the ability is missing.
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
	// It returns when the certificate is there, when the authority said no, or
	// when ctx ends. A failure that a caller can act on is (or wraps) an [*Error];
	// [ActionFor] tells what to do after any error. A call with the ID of an
	// earlier one is a retry of it, with the very same CSR bytes, and may be
	// answered with the certificate that the earlier call made.
	CSRSign(ctx context.Context, req SignRequest) (Certificate, error)
}

// SignRequest is what a certificate is asked for with. The callee must not keep
// or change its slices.
type SignRequest struct {
	// ID is a UUID (RFC 9562). A retry sends the same ID and the same CSR, a new
	// key is a new ID, so that an authority can recognise a repeat.
	ID string
	// CSR is one PKCS #10 request, PEM ("CERTIFICATE REQUEST", RFC 7468).
	CSR []byte
	// SubjectID is the SPIFFE ID asked for; empty where there is none.
	SubjectID string
	// DNSNames and IPAddresses are the further names asked for, for authorities
	// of names. They are the CSR's own, spelled out.
	DNSNames    []string
	IPAddresses []netip.Addr
	// TTL is the lifetime asked for; zero leaves it to the authority. What
	// counts is the leaf's NotAfter.
	TTL time.Duration
	// Token is the caller's bearer credential; possibly empty.
	Token Token
}

// Certificate is what the authority answered. The caller may keep it and must
// not change it.
type Certificate struct {
	// Chain is PEM: the leaf first, then each one's issuer, never the root.
	Chain []byte
	// Roots is PEM: the self-signed certificates that Chain leads to; empty
	// where the authority tells its roots only by [RootSource].
	Roots []byte
	// Signer says who answered, such as "file 1.2.0", for people to read. Whoever
	// runs providers fills it in; it does not travel over the boundary.
	Signer string
}

// RootSource is an authority that tells its roots without signing anything. It is safe
// for concurrent use.
type RootSource interface {
	// Roots returns the current roots, PEM, at least one.
	Roots(ctx context.Context) ([]byte, error)
}

// RootWatcher is an authority that tells its roots as they change, whether or
// not anything is signed. It is safe for concurrent use.
type RootWatcher interface {
	// WatchRoots calls changed with the current roots (PEM) and then with each
	// later set, one call at a time. It returns when ctx ends, when changed
	// returned an error (that error), or when the watch broke; the caller then
	// watches again.
	WatchRoots(ctx context.Context, changed func(roots []byte) error) error
}

// TokenExchanger is the token-exchange hook: it turns the workload's token into
// one that the authority takes (RFC 8693, section 2). It is safe for concurrent use.
type TokenExchanger interface {
	ExchangeToken(ctx context.Context, req TokenRequest) (ExchangedToken, error)
}

// TokenRequest names the token to exchange and what is wanted for it. Empty
// fields are left to the exchanger.
type TokenRequest struct {
	SubjectToken     Token
	SubjectTokenType string // a URN of RFC 8693, section 3
	Audience         string
	Resource         string
	Scopes           []string
	RequestedType    string // a URN of RFC 8693, section 3
}

// ExchangedToken is the answer to a [TokenRequest].
type ExchangedToken struct {
	AccessToken Token
	IssuedType  string    // a URN of RFC 8693, section 3
	Expiry      time.Time // zero where it is not known
}
