package config

import (
	"strings"
	"testing"
	"time"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

func TestValidateNamesRulesThatCannotDoWhatTheySay(t *testing.T) {
	const (
		spiffe = "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"
		itself = "certifies the identity of this program"
		noID   = "ACME has no SPIFFE IDs"
		noCSR  = "the CSRs of pod certificates have no names"
		others = "remove the other names"
		hour   = "cert-manager asks for 1h at least"
		ofNode = "pods get the name of their node"
	)
	mesh := agent.Provider{Entry: pluginhost.Entry{Name: "ca"}}
	for name, c := range map[string]struct {
		provider string
		subjects any
		rule     func(r *Rule)
		want     string // empty: nothing
	}{
		"a mesh with citadel":          {"citadel", nil, istioRule(spiffe), itself},
		"pods with citadel":            {"citadel", nil, podRule(spiffe), itself},
		"a mesh with reflected google": {"google", "reflected-spiffe", istioRule(spiffe), itself},
		"a mesh with google":           {"google", nil, istioRule(spiffe), ""},
		"a mesh with acme":             {"acme", nil, istioRule(spiffe), noID},
		"pods with acme":               {"acme", nil, podRule("", "{pod}.example.org"), noCSR},
		"cert-manager with acme":       {"acme", nil, certManagerRule(24 * time.Hour), ""},
		"a SPIFFE ID with acme":        {"acme", nil, podRule(spiffe), noID},
		"pods with step":               {"step", nil, podRule(spiffe), noCSR},
		"a mesh with step":             {"step", nil, istioRule(spiffe), ""},
		"more names with step":         {"step", nil, istioRule(spiffe, "{namespace}.example.org"), others},
		"an hour of cert-manager":      {"vault", nil, certManagerRule(time.Hour), ""},
		"half an hour":                 {"vault", nil, certManagerRule(30 * time.Minute), hour},
		"half an hour of pods":         {"vault", nil, podRule(spiffe), ""},
		"a node's name":                {"vault", nil, podRule("", "{node}.example.org"), ofNode},
		"a node's name in a mesh":      {"vault", nil, istioRule("spiffe://cluster.local/{node}"), ofNode},
		"a node's name for nodes": {"vault", nil, func(r *Rule) {
			podRule("", "{node}.example.org")(r)
			r.Match.Kinds = []string{"node"}
		}, ""},
	} {
		conf := &Config{Signers: []Signer{{Name: "example.com/pods", PodCertificates: PodCertificates{Enabled: true}}}}
		provider := mesh
		provider.Provider, provider.Settings = c.provider, map[string]any{"subject_mode": c.subjects}
		conf.Hosted().Providers = []agent.Provider{provider}
		rule := Rule{Name: "one", Authority: "ca"}
		rule.MaxTTL.Duration = 24 * time.Hour
		c.rule(&rule)
		conf.Rules = []Rule{rule}
		got := conf.ruleNotes()
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], "rules.one: ") || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func podRule(spiffe string, dns ...string) func(*Rule) {
	return func(r *Rule) { r.Names = Names{SPIFFEID: spiffe, DNSNames: dns} }
}

func istioRule(spiffe string, dns ...string) func(*Rule) {
	return func(r *Rule) {
		podRule(spiffe, dns...)(r)
		r.Match.Requests = []string{IstioRequests}
	}
}

func certManagerRule(longest time.Duration) func(*Rule) {
	return func(r *Rule) {
		r.Match.Requests, r.MaxTTL.Duration = []string{CertManagerRequests}, longest
		r.Names.Requested = []string{"*.{namespace}.example.org"}
	}
}

func TestValidateNamesLimitsOfAGateway(t *testing.T) {
	c := &Config{}
	c.Istio.Listen, c.Istio.Limits = ":15012", IstioLimits{AuthenticationsOfAddress: 600, ConnectionsOfAddress: 2000}
	named := func() bool {
		return strings.Contains(strings.Join(c.istioNotes(), "\n"), "authentications_of_address is 600, connections_of_address 2000")
	}
	if named() {
		t.Error("a service without remote clusters is warned of gateways")
	}
	c.Remotes.Secrets = true
	if !named() {
		t.Errorf("the limits are not named: %q", c.istioNotes())
	}
}

func TestValidateNamesBudgetsOfMachines(t *testing.T) {
	c := &Config{}
	c.Budget = Budget{Holder: 10}
	c.Rules = []Rule{{Name: "machines", Holders: 100, Match: Match{Requests: []string{IstioRequests}}}, {Name: "pods", Holders: 7}}
	c.Budget.HolderEvery.Duration = 5 * time.Minute
	named := func() bool {
		return strings.Contains(strings.Join(c.istioNotes(), "\n"), "rules.machines.holders is 100: on each replica, the tokens of one account get 1000 certificates at once and 1200 an hour, so a caller that reaches N replicas") && !strings.Contains(strings.Join(c.istioNotes(), "\n"), "rules.pods.holders")
	}
	if named() {
		t.Error("a service without machines is warned of their budgets")
	}
	c.Istio.Renewals.Identities = []string{"spiffe://vm.example.org/host/db-1"}
	if !named() {
		t.Errorf("the budgets are not named: %q", c.istioNotes())
	}
}
