package googleca

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Exchange says for whom and where a workload's token is exchanged.
type Exchange struct {
	// Audience is whom Google knows the token's issuer by. Required.
	Audience string `json:"audience,omitempty" jsonschema:"identitynamespace:TRUST_DOMAIN:IDENTITY_PROVIDER, or //iam.googleapis.com/projects/N/locations/global/workloadIdentityPools/P/providers/K; required"`
	// ServiceAccount is an account's email, whose token the federated one is exchanged
	// for in turn. Default: the federated one is used.
	ServiceAccount string `json:"service_account,omitempty" jsonschema:"email of the service account whose token is had by the federated one (default the federated one is used)"`
	// STSURL is the token service. Default: that of the universe.
	STSURL string `json:"sts_url,omitempty" jsonschema:"the token service (default https://sts.googleapis.com/v1/token, or that of universe_domain)"`
	// IAMURL is the service that gives service accounts' tokens, without a path.
	// Default: that of the universe.
	IAMURL string `json:"iam_url,omitempty" jsonschema:"the service that gives service accounts' tokens, without a path (default https://iamcredentials.googleapis.com, or that of universe_domain)"`
	// AllowOtherHosts takes URLs of hosts that are not Google's; they are verified with
	// the settings' RootFile. Default: false.
	AllowOtherHosts bool `json:"allow_other_hosts,omitempty" jsonschema:"takes URLs of hosts that are not Google's, verified with root_file: whoever is there gets the workload's token (default false)"`
}

const googleUniverse = "googleapis.com"

var (
	audience = regexp.MustCompile(`^(identitynamespace:[^\s:]+:[!-~]+|//iam\.[a-z0-9.-]+/projects/[\w.:-]+/locations/[\w-]+/workloadIdentityPools/[\w-]+/providers/[\w-]+)$`)
	account  = regexp.MustCompile(`^[\w.-]+@[a-z0-9-]+(\.[a-z0-9-]+)+$`)
)

// exchange returns the block with its defaults; without one, a request says what it is
// about.
func (s Settings) exchange() Exchange {
	var x Exchange
	if s.Exchange != nil {
		x = *s.Exchange
	}
	if x.STSURL == "" {
		x.STSURL = "https://sts." + s.universe() + "/v1/token"
	}
	if x.IAMURL == "" {
		x.IAMURL = "https://iamcredentials." + s.universe()
	}
	return x
}

func (s Settings) universe() string {
	if s.UniverseDomain == "" {
		return googleUniverse
	}
	return s.UniverseDomain
}

func (s Settings) checkExchange() error {
	if s.Exchange == nil {
		return nil
	}
	x := *s.Exchange
	switch {
	case s.Credentials != Token:
		return ca.Errorf(ca.Invalid, "credentials is %q and exchange is set: what is exchanged is the token of a request; write token, or nothing", s.Credentials)
	case !audience.MatchString(x.Audience):
		return ca.Errorf(ca.Invalid, "exchange.audience is %.256q: write identitynamespace:TRUST_DOMAIN:IDENTITY_PROVIDER, or //iam.googleapis.com/projects/N/locations/global/workloadIdentityPools/P/providers/K", x.Audience)
	case x.ServiceAccount != "" && !account.MatchString(x.ServiceAccount):
		return ca.Errorf(ca.Invalid, "exchange.service_account is %.256q: write an account's email", x.ServiceAccount)
	case x.IAMURL != "" && x.ServiceAccount == "":
		return ca.Errorf(ca.Invalid, "exchange.iam_url is set, and no exchange.service_account that it is about")
	}
	x = s.exchange()
	if err := s.checkURL("sts", "exchange.sts_url", x.STSURL); err != nil {
		return err
	}
	return s.checkURL("iamcredentials", "exchange.iam_url", x.IAMURL)
}

// checkURL lets a token go over TLS and to Google only, unless the operator says so.
func (s Settings) checkURL(service, name, text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.User != nil:
		return ca.Errorf(ca.Invalid, "%s is no URL, or has a user in it: write https://HOST", name)
	case u.Scheme != "https" || u.Host == "" || u.Fragment != "" || u.RawQuery != "":
		return ca.Errorf(ca.Invalid, "%s is %.256q: write https://HOST; a token is sent by TLS only", name, text)
	case !s.Exchange.AllowOtherHosts && !isGoogles(service, u.Host, s.universe()):
		return ca.Errorf(ca.Invalid, "%s leads to %.256q: a workload's token is for %s.%s, its regional and private endpoints; elsewhere it goes with allow_other_hosts", name, u.Host, service, s.universe())
	}
	return nil
}

// isGoogles tells whether a host is a service's own: global, by mutual TLS, of a region
// (SERVICE.REGION.rep) or private (SERVICE-NAME.p).
func isGoogles(service, host, universe string) bool {
	name, ours := strings.CutSuffix(strings.TrimSuffix(host, ":443"), "."+universe)
	below, more := strings.CutPrefix(name, service)
	switch {
	case !ours || !more:
		return false
	case below == "", below == ".mtls":
		return true
	}
	return below[0] == '.' && strings.HasSuffix(below, ".rep") || below[0] == '-' && strings.HasSuffix(below, ".p")
}
