package pki

import (
	"fmt"
	"net/url"
	"strings"
)

// Length limits of the SPIFFE-ID standard, section 2.3.
const (
	maxSPIFFEID    = 2048
	maxTrustDomain = 255
)

// ParseSPIFFEID parses a workload's SPIFFE ID (SPIFFE-ID standard, section 2):
// spiffe://<trust domain>/<path>. The path is required, as in every leaf (X509-SVID
// standard, section 2).
func ParseSPIFFEID(text string) (*url.URL, error) {
	if reason := spiffeIDFault(text); reason != "" {
		return nil, fmt.Errorf("SPIFFE ID %.256q is not valid: %s", text, reason)
	}
	domain, path, _ := strings.Cut(strings.TrimPrefix(text, "spiffe://"), "/")
	return &url.URL{Scheme: "spiffe", Host: domain, Path: "/" + path}, nil
}

// CheckTrustDomain returns an error if name is not a valid trust domain (SPIFFE-ID
// standard, section 2.1).
func CheckTrustDomain(name string) error {
	if reason := trustDomainFault(name); reason != "" {
		return fmt.Errorf("trust domain %.256q is not valid: %s", name, reason)
	}
	return nil
}

func spiffeIDFault(text string) string {
	rest, ok := strings.CutPrefix(text, "spiffe://")
	if !ok {
		return "it must begin with spiffe://"
	}
	if len(text) > maxSPIFFEID {
		return fmt.Sprintf("it is longer than %d bytes", maxSPIFFEID)
	}
	domain, path, ok := strings.Cut(rest, "/")
	if reason := trustDomainFault(domain); reason != "" {
		return reason
	}
	if !ok {
		return "it needs a path, as in spiffe://example.org/ns/default/sa/web"
	}
	for segment := range strings.SplitSeq(path, "/") {
		if reason := segmentFault(segment); reason != "" {
			return reason
		}
	}
	return ""
}

func trustDomainFault(name string) string {
	switch {
	case name == "":
		return "the trust domain is empty"
	case len(name) > maxTrustDomain:
		return fmt.Sprintf("the trust domain is longer than %d bytes", maxTrustDomain)
	case !onlyOf(name, trustDomainChar):
		return "a trust domain has lower-case letters, digits, '.', '-' and '_' only"
	}
	return ""
}

func segmentFault(segment string) string {
	switch {
	case segment == "":
		return "a path segment is empty"
	case segment == "." || segment == "..":
		return "a path segment is '.' or '..'"
	case !onlyOf(segment, func(c byte) bool { return trustDomainChar(c) || isUpper(c) }):
		return "a path has letters, digits, '.', '-' and '_' only"
	}
	return ""
}

func trustDomainChar(c byte) bool {
	return isLower(c) || isDigit(c) || c == '.' || c == '-' || c == '_'
}
