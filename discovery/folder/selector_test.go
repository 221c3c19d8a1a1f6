package folder

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/sdk/authn"
)

func selectorOf(t interface{ Fatal(...any) }, text string) selector {
	var tree any
	err := yaml.Unmarshal([]byte(text), &tree)
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseSelector(tree)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSelectorMatching(t *testing.T) {
	c := gateway(t)
	c.Node = discovery.Node{ID: "gateway~1", Labels: map[string]string{"app": "gateway", "version": "v1"}}
	for text, want := range map[string]bool{
		"{trust_domains: [example.com, example.org]}":             true,
		"{trust_domains: [example.com]}":                          false,
		"{spiffe_ids: [spiffe://example.org/ns/ingress/sa/*]}":    true,
		"{spiffe_ids: [spiffe://example.org/ns/*/sa/gateway]}":    true,
		"{spiffe_ids: [spiffe://example.org/ns/*]}":               false,
		"{spiffe_ids: [spiffe://example.org/**]}":                 true,
		"{spiffe_ids: [spiffe://example.org/ns/ingress/sa/g*y]}":  true,
		"{spiffe_ids: [spiffe://example.org/ns/ingress/sa/gate]}": false,
		"{spiffe_ids: [spiffe://example.org/ns/ingress/sa/*/**]}": false,
		"{namespaces: [ingress]}":                                 true,
		"{namespaces: [in*]}":                                     true,
		"{namespaces: [shop]}":                                    false,
		"{service_accounts: [ingress/gateway]}":                   true,
		"{service_accounts: [\"*/gateway\"]}":                     true,
		"{service_accounts: [shop/gateway]}":                      false,
		"{clusters: [west, east]}":                                true,
		"{clusters: [west]}":                                      false,
		"{namespaces: [ingress], clusters: [west]}":               false,
		"{anyone: true, labels: {app: gateway}}":                  true,
		"{anyone: true, labels: {app: gateway, version: v2}}":     false,
		"{anyone: true, labels: {zone: a}}":                       false,
		"{anyone: true, node_ids: [\"gateway~*\"]}":               true,
		"{anyone: true, node_ids: [gateway]}":                     false,
	} {
		if got := selectorOf(t, text).matches(c); got != want {
			t.Errorf("%s: got %t", text, got)
		}
	}
}

// What a caller has not proven, no pattern is like, not even *.
func TestMissingAttributeMatchesNoPattern(t *testing.T) {
	nobody := &discovery.Caller{}
	for _, text := range []string{
		"{trust_domains: [example.org]}", "{spiffe_ids: [spiffe://example.org/**]}", "{namespaces: [\"*\"]}",
		"{service_accounts: [\"*/*\"]}", "{clusters: [\"*\"]}", "{anyone: true, node_ids: [\"*\"]}",
	} {
		if selectorOf(t, text).matches(nobody) {
			t.Errorf("%s matches no client", text)
		}
	}
}

// The client claims all that it can, and gets nothing beyond its identity's
// rights.
func TestClaimedNodeDataGivesNoRight(t *testing.T) {
	d := newDir(t)
	claims := ", labels: {app: gateway, namespace: ingress}, node_ids: [gateway]}\n---\n"
	d.write("a.yaml", "for: {namespaces: [ingress]"+claims+cluster)
	d.write("b.yaml", "for: {spiffe_ids: [spiffe://example.org/ns/ingress/sa/gateway]"+claims+fmtListener())
	d.write("c.yaml", "for: {service_accounts: [ingress/gateway]"+claims+endpoints("10.0.0.1"))
	d.write("d.yaml", "for: {trust_domains: [example.com]"+claims+second)
	d.write("e.yaml", "for: {clusters: [west]"+claims+"hosts: {db.example.org: {ips: [10.0.0.1]}}")
	f := d.open()
	forger := caller(t, "spiffe://example.org/ns/shop/sa/web")
	forger.Node = discovery.Node{ID: "gateway", Labels: map[string]string{
		"app": "gateway", "namespace": "ingress", "cluster": "west", "service_account": "gateway",
	}}
	for _, k := range []key{{ClusterURL, "web"}, {ClusterURL, "second"}, {ListenerURL, "ingress"}, {EndpointURL, "web"}} {
		if f.version(forger, k.url, k.name) != "" {
			t.Errorf("it has %s", k)
		}
	}
	for _, url := range []string{ClusterURL, ListenerURL} {
		if names := f.now.Load().view(forger).names[url]; len(names) != 0 {
			t.Errorf("it is shown %q", names)
		}
	}
	if f.version(forger, NameTableURL, tableName) != f.version(&discovery.Caller{}, NameTableURL, tableName) {
		t.Error("it has names of another cluster")
	}
	rightful := gateway(t)
	rightful.Node = forger.Node
	if f.version(rightful, ClusterURL, "web") == "" || f.version(rightful, ListenerURL, "ingress") == "" {
		t.Errorf("who may have it has not: %+v", f.Status())
	}
}

func fmtListener() string { return strings.Replace(listener, "%s", aboutHTTP, 1) }

func TestFileOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"{namespaces: [a]}", "{namespaces: [b]}", false},
		{"{namespaces: [a]}", "{namespaces: [b, a]}", true},
		{"{namespaces: [team-*]}", "{namespaces: [\"*-a\"]}", true},
		{"{namespaces: [team-*]}", "{namespaces: [\"ops-*\"]}", false},
		{"{namespaces: [a]}", "{clusters: [east]}", true},
		{"{namespaces: [a]}", "{service_accounts: [b/gateway]}", false},
		{"{service_accounts: [a/x]}", "{service_accounts: [a/y]}", false},
		{"{service_accounts: [a/x]}", "{service_accounts: [a/*]}", true},
		{"{clusters: [a]}", "{clusters: [b]}", false},
		{"{clusters: [a]}", "{clusters: [\"*\"]}", true},
		{"{anyone: true, node_ids: [a]}", "{anyone: true, node_ids: [b]}", false},
		{"{anyone: true, node_ids: [a]}", "{anyone: true, node_ids: [\"a*\"]}", true},
		{"{trust_domains: [a]}", "{spiffe_ids: [spiffe://b/x]}", false},
		{"{spiffe_ids: [spiffe://a/x/*]}", "{spiffe_ids: [spiffe://a/x]}", false},
		{"{spiffe_ids: [spiffe://a/x/*]}", "{spiffe_ids: [spiffe://a/**]}", true},
		{"{anyone: true, labels: {v: a}}", "{anyone: true, labels: {v: b}}", false},
		{"{anyone: true, labels: {v: a}}", "{anyone: true, labels: {w: b}}", true},
	} {
		a, b := selectorOf(t, c.a), selectorOf(t, c.b)
		if a.overlaps(b) != c.want || b.overlaps(a) != c.want {
			t.Errorf("%s and %s: got %t, want %t", c.a, c.b, !c.want, c.want)
		}
	}
}

// Two that match one caller overlap: else a caller had two resources with one name.
func TestSelectorsMatchingOneCallerOverlap(t *testing.T) {
	word := rapid.StringMatching(`[ab]{1,3}`)
	pattern := rapid.StringMatching(`[ab*]{1,4}`)
	words := func(of *rapid.Generator[string]) *rapid.Generator[[]string] { return rapid.SliceOfN(of, 0, 2) }
	draw := func(t *rapid.T) selector {
		return selector{
			TrustDomains:    words(word).Draw(t, "domains"),
			SPIFFEIDs:       words(rapid.StringMatching(`spiffe://[ab]/(\*\*|ns/[ab*]{1,2}/sa/([ab*]{1,2}|\*\*))`)).Draw(t, "ids"),
			Namespaces:      words(pattern).Draw(t, "namespaces"),
			ServiceAccounts: words(rapid.StringMatching(`[ab*]{1,2}/[ab*]{1,2}`)).Draw(t, "accounts"),
			NodeIDs:         words(pattern).Draw(t, "nodes"),
			Labels:          rapid.MapOfN(word, word, 0, 2).Draw(t, "labels"),
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		id, err := authn.OfSPIFFEID(rapid.StringMatching(`spiffe://[ab]/ns/[ab]{1,2}/sa/[ab]{1,2}`).Draw(t, "id"))
		if err != nil {
			t.Fatal(err)
		}
		c := &discovery.Caller{Identity: id, Node: discovery.Node{ID: word.Draw(t, "node"), Labels: rapid.MapOfN(word, word, 0, 3).Draw(t, "has")}}
		a, b := draw(t), draw(t)
		if a.matches(c) && b.matches(c) && !a.overlaps(b) {
			t.Fatalf("%+v and %+v match %s and do not overlap", a, b, id)
		}
	})
}
