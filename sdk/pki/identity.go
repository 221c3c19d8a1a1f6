// Package pki holds what Countersign needs of X.509: keys, certificate signing
// requests, PEM in and out, the check of a CA's reply ([Check]) and the trust
// [Bundle]. It uses the standard library only, and everything it parses may come
// from a stranger: sizes and counts are bounded.
package pki

import (
	"net/netip"
	"net/url"
)

// Identity is what a certificate is for: a SPIFFE ID, DNS names and IP addresses,
// one of them at least. The zero value names nothing. An Identity is not changed
// once made.
type Identity struct {
	SPIFFEID    *url.URL // SPIFFE-ID standard, section 2; nil where there is none
	DNSNames    []string
	IPAddresses []netip.Addr
}
