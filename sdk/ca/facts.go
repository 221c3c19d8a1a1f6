package ca

// Facts are what a provider knows about its authority, whatever its settings. They are the
// defaults of its host, which the operator may override. The zero value makes no exception.
type Facts struct {
	// FixedLifetime means that the authority chooses how long certificates live, whatever
	// TTL is requested. The host then accepts longer ones.
	FixedLifetime bool `json:"fixed_lifetime,omitempty"`
	// NameMatch is how closely the names of a certificate match the requested ones. The
	// host then accepts others to this extent.
	NameMatch NameMatch `json:"name_match,omitempty"`
	// NeedsToken means that the authority signs nothing without a token.
	NeedsToken bool `json:"needs_token,omitempty"`
}

// NameMatch is how closely the names of a certificate match those of its request.
type NameMatch int

// The matches, strictest first.
const (
	MatchExact       NameMatch = iota // the requested names, no more and no fewer
	MatchTrustDomain                  // a SPIFFE ID in the same trust domain
	MatchAny                          // any names
)

// String returns the match as configurations write it: exact, trust-domain or any.
func (m NameMatch) String() string {
	switch m {
	case MatchTrustDomain:
		return "trust-domain"
	case MatchAny:
		return "any"
	}
	return "exact"
}
