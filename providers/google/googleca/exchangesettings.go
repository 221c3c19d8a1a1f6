package googleca

import (
	"cmp"
	"net/url"
	"regexp"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// Exchange configures how to exchange the tokens of workloads.
type Exchange struct {
	// Audience identifies the issuer of the tokens to Google. Required.
	Audience string `json:"audience,omitempty" jsonschema:"identitynamespace:TRUST_DOMAIN:IDENTITY_PROVIDER, or //iam.googleapis.com/projects/N/locations/global/workloadIdentityPools/P/providers/K; required"`
	// ServiceAccount is the email of an account to impersonate: the federated token is
	// exchanged for the account's. Default: the federated token is used.
	ServiceAccount string `json:"service_account,omitempty" jsonschema:"email of a service account to impersonate with the federated token (default use the federated token)"`
	// STSURL is the URL of the token service. Default: that of UniverseDomain.
	STSURL setting.URL `json:"sts_url,omitzero" jsonschema:"URL of the token service (default https://sts.googleapis.com/v1/token, or that of universe_domain)"`
	// IAMURL is the URL of the service for service account tokens, without a path. Default:
	// that of UniverseDomain.
	IAMURL setting.URL `json:"iam_url,omitzero" jsonschema:"URL of the service for service account tokens, without a path (default https://iamcredentials.googleapis.com, or that of universe_domain)"`
	// AllowOtherHosts allows URLs of hosts that are not Google's. RootFile verifies them.
	// Default: false.
	AllowOtherHosts bool `json:"allow_other_hosts,omitempty" jsonschema:"allow URLs of hosts that are not Google's, verified with root_file; they get the workload's token (default false)"`
}

const googleUniverse = "googleapis.com"

var (
	audience = regexp.MustCompile(`^(identitynamespace:[^\s:]+:[!-~]+|//iam\.[a-z0-9.-]+/projects/[\w.:-]+/locations/[\w-]+/workloadIdentityPools/[\w-]+/providers/[\w-]+)$`)
	account  = regexp.MustCompile(`^[\w.-]+@[a-z0-9-]+(\.[a-z0-9-]+)+$`)
)

// exchange returns the block with its defaults. Without a block, the request has to name the
// audience.
func (s Settings) exchange() Exchange {
	var x Exchange
	if s.Exchange != nil {
		x = *s.Exchange
	}
	x.STSURL = cmp.Or(x.STSURL, httpsOf("sts."+s.universe(), "/v1/token"))
	x.IAMURL = cmp.Or(x.IAMURL, httpsOf("iamcredentials."+s.universe(), ""))
	return x
}

func httpsOf(host, path string) setting.URL {
	return setting.URL{URL: url.URL{Scheme: "https", Host: host, Path: path}}
}

func (s Settings) universe() string {
	return cmp.Or(s.UniverseDomain, googleUniverse)
}

func (s Settings) checkExchange() error {
	if s.Exchange == nil {
		return nil
	}
	x := *s.Exchange
	switch {
	case s.Credentials != Token:
		return ca.Errorf(ca.Invalid, "credentials is %q, but exchange needs the token of a request: set credentials to token, or remove it", s.Credentials)
	case !audience.MatchString(x.Audience):
		return ca.Errorf(ca.Invalid, "exchange.audience is %.256q: write identitynamespace:TRUST_DOMAIN:IDENTITY_PROVIDER, or //iam.googleapis.com/projects/N/locations/global/workloadIdentityPools/P/providers/K", x.Audience)
	case x.ServiceAccount != "" && !account.MatchString(x.ServiceAccount):
		return ca.Errorf(ca.Invalid, "exchange.service_account is %.256q: write an account's email", x.ServiceAccount)
	case x.IAMURL.Host != "" && x.ServiceAccount == "":
		return ca.Errorf(ca.Invalid, "exchange.iam_url is set, but exchange.service_account is not")
	}
	x = s.exchange()
	if err := s.checkURL("sts", "exchange.sts_url", x.STSURL); err != nil {
		return err
	}
	return s.checkURL("iamcredentials", "exchange.iam_url", x.IAMURL)
}

// checkURL allows tokens over TLS only, and to Google only unless AllowOtherHosts is set.
func (s Settings) checkURL(service, name string, u setting.URL) error {
	err := u.CheckSetting("")
	switch {
	case err != nil:
		return ca.Errorf(ca.Invalid, "%s: %w, as tokens are sent over TLS only", name, err)
	case !s.Exchange.AllowOtherHosts && !isGoogles(service, u.Host, s.universe()):
		return ca.Errorf(ca.Invalid, "%s leads to %.256q: want %s.%s or one of its regional or private endpoints, or set allow_other_hosts", name, u.Host, service, s.universe())
	}
	return nil
}

// isGoogles reports whether a host is one of the service's: global, for mutual TLS, of a region
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
