package program

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
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
		rule     func(r *config.Rule)
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
		"a node's name for nodes": {"vault", nil, func(r *config.Rule) {
			podRule("", "{node}.example.org")(r)
			r.Match.Kinds = []string{"node"}
		}, ""},
	} {
		conf := &config.Config{Signers: []config.Signer{{Name: "example.com/pods", PodCertificates: config.PodCertificates{Enabled: true}}}}
		provider := mesh
		provider.Provider, provider.Settings = c.provider, map[string]any{"subject_mode": c.subjects}
		conf.Hosted().Providers = []agent.Provider{provider}
		rule := config.Rule{Name: "one", Authority: "ca"}
		rule.MaxTTL.Duration = 24 * time.Hour
		c.rule(&rule)
		conf.Rules = []config.Rule{rule}
		got := ruleNotes(conf)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], "rules.one: ") || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func podRule(spiffe string, dns ...string) func(*config.Rule) {
	return func(r *config.Rule) { r.Names = config.Names{SPIFFEID: spiffe, DNSNames: dns} }
}

func istioRule(spiffe string, dns ...string) func(*config.Rule) {
	return func(r *config.Rule) {
		podRule(spiffe, dns...)(r)
		r.Match.Requests = []string{config.IstioRequests}
	}
}

func certManagerRule(longest time.Duration) func(*config.Rule) {
	return func(r *config.Rule) {
		r.Match.Requests, r.MaxTTL.Duration = []string{config.CertManagerRequests}, longest
		r.Names.Requested = []string{"*.{namespace}.example.org"}
	}
}
