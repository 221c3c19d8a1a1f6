package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/token"
)

const gkeCluster = "https://container.googleapis.com/v1/projects/p/locations/us-central1-c/clusters/c"

// withGoogle is a file with one google provider.
func withGoogle(lines string) string { return "dev: true\nproviders:\n- name: google\n" + lines }

func TestProviderExchangesTokenByDefault(t *testing.T) {
	for name, lines := range map[string]string{
		"with Istio's token": "  settings: {exchange: {audience: a}}",
		"from a file":        "  token: {file: /token}\n  settings: {exchange: {audience: a}}",
		"where it is set":    "  token: {env: T, exchange: [{provider: true}]}\n  settings: {exchange: {audience: a}}",
	} {
		c, _ := mustLoad(t, withGoogle(lines), append([]string{"T=x"}, identity...))
		entry := c.Providers[0]
		if len(entry.TokenSources()) != 1 || len(entry.Token.Exchange) != 1 || !entry.Token.Exchange[0].Provider {
			t.Errorf("%s: %+v", name, entry.Token)
		}
	}
	c, _ := mustLoad(t, withGoogle("  settings: {exchange: {audience: a}}"), identity)
	if got := explained(t, c, "providers.google.token.exchange.0.provider"); got.From != "settings.exchange" {
		t.Errorf("explained as %+v", got)
	}
	if got := c.Providers[0].Token.File; got != istioToken {
		t.Errorf("the token is from %q", got)
	}
	// Istio's token has another audience than AWS's.
	c, _ = mustLoad(t, "dev: true\nproviders: [{name: aws, settings: {exchange: {role_arn: r}}}]", identity)
	if got := c.Providers[0].Token.File; got != "/var/run/secrets/eks.amazonaws.com/serviceaccount/token" {
		t.Errorf("the token for AWS is from %q", got)
	}
	if got := explained(t, c, "providers.aws.token.file"); got.From != "where EKS mounts it" {
		t.Errorf("explained as %+v", got)
	}
	c, _ = mustLoad(t, "dev: true\nproviders: [{name: aws, token: {file: /token}, settings: {exchange: {role_arn: r}}}]", identity)
	if got := c.Providers[0].Token.Exchange; len(got) != 1 || !got[0].Provider {
		t.Errorf("aws: %+v", got)
	}
	for name, file := range map[string]string{
		"google without the block": withGoogle("  token: {file: /token}"),
		"another provider":         "dev: true\nproviders: [{name: file, token: {file: /token}, settings: {exchange: {audience: a}}}]",
	} {
		c, _ := mustLoad(t, file, identity)
		if got := c.Providers[0].Token.Exchange; len(got) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestProviderExchangeFollowsServerExchange(t *testing.T) {
	for lines, want := range map[string]string{
		"{url: https://sts.example}":                             token.TypeJWT,
		"{url: https://sts.example, requested_token_type: u:id}": "u:id",
	} {
		c, _ := mustLoad(t, withGoogle("  token: {env: T, exchange: ["+lines+"]}\n  settings: {exchange: {audience: a}}"), append([]string{"T=x"}, identity...))
		if got := c.Providers[0].Token.Exchange; len(got) != 2 || got[0].Provider || !got[1].Provider || got[1].SubjectType != want {
			t.Errorf("%s: %+v", lines, got)
		}
	}
}

func TestGoogleMachineUsesItsOwnToken(t *testing.T) {
	environ := []string{"CA_ADDR=projects/p/locations/l/caPools/n", "CREDENTIAL_FETCHER_TYPE=GoogleComputeEngine", "TRUST_DOMAIN=p.svc.id.goog", "POD_NAMESPACE=n", "SERVICE_ACCOUNT=s", "COUNTERSIGN_DEV=true"}
	c, _ := mustLoad(t, "", environ)
	entry := c.Providers[0]
	exchange, _ := entry.Settings["exchange"].(map[string]any)
	if sources := entry.TokenSources(); len(sources) != 1 || sources[0].GCE.Audience != "p.svc.id.goog" || exchange["audience"] != "identitynamespace:p.svc.id.goog:GoogleComputeEngine" || len(entry.Token.Exchange) != 1 {
		t.Errorf("%+v, %v", entry.Token, entry.Settings)
	}
	c, warnings := mustLoad(t, withGoogle("  settings: {credentials: adc}"), append(environ[1:], "CA_PROVIDER=GoogleCAS"))
	if len(c.Providers[0].TokenSources()) > 0 || !slices.ContainsFunc(warnings, func(w string) bool { return strings.HasPrefix(w, "CREDENTIAL_FETCHER_TYPE has no effect") }) {
		t.Errorf("%+v, %q", c.Providers[0], warnings)
	}
	_, _, err := load("", append(environ, "CREDENTIAL_FETCHER_TYPE=Magic"))
	wantError(t, err, `CREDENTIAL_FETCHER_TYPE is "Magic": the metadata server's token is only for`)
}

func TestGKEClusterSetsLocationAndAudience(t *testing.T) {
	audience := "identitynamespace:p.svc.id.goog:" + gkeCluster
	for _, test := range []struct {
		environ, file      string
		location, exchange any
		warns              bool
	}{
		{environ: "CA_ADDR=meshca.example:443 GKE_CLUSTER_URL=" + gkeCluster, location: gkeCluster, exchange: audience},
		{environ: "CA_ADDR=meshca.example:443 GKE_CLUSTER_URL=us-central1-c", location: "us-central1-c"},
		{environ: "CA_ADDR=projects/p/locations/l/caPools/n GKE_CLUSTER_URL=" + gkeCluster, exchange: audience},
		{environ: "CA_ADDR=projects/p/locations/l/caPools/n GKE_CLUSTER_URL=us-central1-c", warns: true},
		{environ: "CA_PROVIDER=GoogleCAS GKE_CLUSTER_URL=" + gkeCluster, file: withGoogle("  settings: {credentials: adc}"), warns: true},
		{environ: "CA_PROVIDER=GoogleCAS GKE_CLUSTER_URL=" + gkeCluster, file: withGoogle("  settings: {exchange: {audience: own}}"), exchange: "own", warns: true},
		{environ: "CA_PROVIDER=GoogleCA GKE_CLUSTER_URL=" + gkeCluster, file: withGoogle("  settings: {protocol: meshca, credentials: token}"), location: gkeCluster, exchange: audience},
	} {
		environ := append(strings.Fields(test.environ), "TRUST_DOMAIN=p.svc.id.goog", "POD_NAMESPACE=n", "SERVICE_ACCOUNT=s", "COUNTERSIGN_DEV=true")
		c, warnings := mustLoad(t, test.file, environ)
		settings := c.Providers[0].Settings
		var exchange any
		if block, ok := settings["exchange"].(map[string]any); ok {
			exchange = block["audience"]
		}
		warned := slices.ContainsFunc(warnings, func(w string) bool { return strings.HasPrefix(w, "GKE_CLUSTER_URL has no effect") })
		if settings["location"] != test.location || exchange != test.exchange || warned != test.warns {
			t.Errorf("%s: %v, %q", test.environ, settings, warnings)
		}
	}
}
