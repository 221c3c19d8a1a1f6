package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	filed = "providers: [{name: file, sha256: " + pin + ", settings: {dir: ./ca}}]\nstate: {dir: ./state, key_file: ./key}\n"
	acme  = "providers: [{name: le, provider: acme, sha256: " + pin + "}]\nstate: {dir: ./state, key_file: ./key}\n"
)

func TestRuleHasDefaults(t *testing.T) {
	c, _ := mustLoad(t, filed+`secrets: [{match: "*.shop.example.org"}]`, nil)
	rules := c.Rules()
	if len(rules) != 1 || len(c.Named()) != 0 {
		t.Fatalf("got %d rules and %d secrets; want one rule, and neither default nor ROOTCA", len(rules), len(c.Named()))
	}
	r := rules[0]
	if r.Name != "*.shop.example.org" || r.Kind != KeyPair || r.TTL.Duration != 24*time.Hour || r.KeyType != "ecdsa-p256" || !slices.Equal(r.Providers, []string{"file"}) {
		t.Errorf("the rule is %+v", r)
	}
	o := r.OnDemand
	if o.Names != 10_000 || o.Wait.Duration != 8*time.Second || o.Idle.Duration != 720*time.Hour {
		t.Errorf("on_demand is %+v", o)
	}
}

func TestRuleHasWhatIsWritten(t *testing.T) {
	c, _ := mustLoad(t, acme+`secrets: [{name: shops, match: ["*.shop.example.org", "a.example.org"], on_demand: {ask: {url: "http://127.0.0.1:9000/allowed"}, names: 50000, budget: {new: 5/min, burst: 7}, wait: 3s, idle: 12h}}]`, nil)
	o := c.Rules()[0].OnDemand
	if o.Names != 50_000 || o.Wait.Duration != 3*time.Second || o.Idle.Duration != 12*time.Hour {
		t.Errorf("on_demand is %+v", o)
	}
	if b := o.Budget; b.New.String() != "5/min" || b.Burst != 7 || b.PerRegisteredDomain.String() != "50/week" {
		t.Errorf("the budget is %+v", b)
	}
	if !c.Costly("le") || c.Costly("file") {
		t.Error("the provider le runs acme, which is costly; file is unknown")
	}
}

func TestWorkloadBesideRulesKeepsItsSecrets(t *testing.T) {
	c, _ := mustLoad(t, working+`secrets: [{match: "**", provider: file}]`, nil)
	if named := c.Named(); len(named) != 2 || named[0].Name != DefaultSecret || named[1].Name != RootCA {
		t.Errorf("got %v", named)
	}
	c, _ = mustLoad(t, filed+`secrets: [{match: "**"}, {name: ROOTCA}]`, nil)
	if named := c.Named(); len(named) != 1 || named[0].Name != RootCA {
		t.Errorf("got %v, want the ROOTCA that is written", named)
	}
}

func TestWrongRulesAreRefused(t *testing.T) {
	for file, want := range map[string]string{
		acme + `secrets: [{match: "*.example.org"}]`:                                                                             "secrets.*.example.org.on_demand.ask is not set: any client could order certificates from le",
		acme + `secrets: [{match: "**", match_file: names.txt}]`:                                                                 "secrets.**.on_demand.ask is not set",
		acme + `secrets: [{match: "**", on_demand: {ask: {url: "ftp://x"}}}]`:                                                    `on_demand.ask.url is "ftp://x"`,
		acme + `secrets: [{match: "**", on_demand: {ask: {url: "http:///x"}}}]`:                                                  `on_demand.ask.url is "http:///x"`,
		filed + `secrets: [{match: "**", on_demand: {ask: {url: "http://x", file: f}}}]`:                                         "write one of url, file and command",
		filed + `secrets: [{match: "**", on_demand: {ask: {command: [allowed]}}}]`:                                               "begin with the program's absolute path",
		filed + `secrets: [{match: ["**.example.org", "b.example.org"]}, {name: two, match: "**.EXAMPLE.org"}]`:                  "secrets.**.example.org and secrets.two both match **.example.org",
		filed + `secrets: [{match: "a.*.org"}]`:                                                                                  `secrets.a.*.org.match is "a.*.org"`,
		filed + `secrets: [{match: "*_.example.org"}]`:                                                                           "invalid",
		filed + `secrets: [{match: "**", dns_names: [a.example.org]}]`:                                                           "remove kind, spiffe_id, dns_names and ip_addresses",
		filed + `secrets: [{match: "**", kind: trust-bundle}]`:                                                                   "remove kind",
		filed + `secrets: [{name: default, match: "**"}]`:                                                                        "clients expect one secret by that name",
		filed + `secrets: [{name: a, dns_names: [a.example.org], on_demand: {wait: 1s}}]` + "\nnamespace: a\nservice_account: b": "secrets.a.on_demand needs match or match_file",
		filed + `secrets: [{match: "**", providers: [file, x]}]`:                                                                 "one provider signs",
		filed + `secrets: [{match: "**", provider: nowhere}]`:                                                                    "configured are file",
		filed + `secrets: [{match: "**", on_demand: {wait: 1h}}]`:                                                                "write 100ms to 1m",
		filed + `secrets: [{match: "**", on_demand: {idle: 1s}}]`:                                                                "write 1m or more",
		filed + `secrets: [{match: "**", on_demand: {names: 2000000}}]`:                                                          "write 1 to 1000000",
		filed + `secrets: [{match: "**", on_demand: {budget: {new: 10/year}}}]`:                                                  "such as 10/min",
		filed + `secrets: [{match: "**", on_demand: {idle: 30 d}}]`:                                                              "such as 12h or 30d",
		filed + "socket: {enabled: false}\noutputs: []\n" + `secrets: [{match: "**"}]`:                                           "socket.enabled is false",
		filed + `secrets: [{match: "**"}, {name: "**", match: "a.example.org"}]`:                                                 `secrets has "**" twice: write another name`,
		filed + `secrets: [{match: "**", on_demand: {cover: [wild]}}]`:                                                           `secrets.**.on_demand.cover is "wild": no secret has that name`,
		filed + `secrets: [{match: "**", on_demand: {cover: [ROOTCA]}}, {name: ROOTCA}]`:                                         `it has no certificate of its own`,
		filed + `secrets: [{match: "**", on_demand: {cover: ["**"]}}]`:                                                           `no secret has that name`,
		filed + `secrets: [{match: "**", on_demand: {cover: [w, w]}}, {name: w, dns_names: ["*.example.org"]}]`:                  `it is there twice`,
		filed + "workloads: {verified_by: authority}\n" + `secrets: [{match: "**"}]`:                                             "with workloads",
	} {
		if _, _, err := load(file, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
	for _, file := range []string{
		acme + `secrets: [{match: [a.example.org, b.example.org]}]`,
		acme + `secrets: [{match_file: names.txt}]`,
		acme + `secrets: [{match: "**", on_demand: {ask: {file: allowed.txt}}}]`,
		filed + `secrets: [{match: "**.example.org"}, {match: "*.example.org"}]`,
		filed + `secrets: [{match: "**", on_demand: {cover: [wild]}}, {name: wild, dns_names: ["*.example.org"]}]`,
	} {
		if _, _, err := load(file, nil); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestRuleWithoutStateIsWarnedOf(t *testing.T) {
	c, _ := mustLoad(t, strings.Split(filed, "\n")[0]+"\n"+`secrets: [{match: "**"}]`, nil)
	if got := strings.Join(c.Warnings(), "\n"); !strings.Contains(got, "a restart orders a certificate for each name anew") {
		t.Errorf("warned of %q", got)
	}
	if c, _ = mustLoad(t, filed+`secrets: [{match: "**"}]`, nil); len(c.Warnings()) > 0 {
		t.Errorf("with state: warned of %q", c.Warnings())
	}
}

func TestRuleIsExplainedAndItsChangesApplyLive(t *testing.T) {
	file := filed + "secrets:\n- match: \"*.example.org, b.test\"\n  on_demand: {wait: 2s}\n- match_file: names.txt\n"
	c, _ := mustLoad(t, file, nil)
	from := map[string]string{}
	for _, e := range c.Explain() {
		from[e.Setting] = e.From
	}
	for path, want := range map[string]string{
		"secrets.*.example.org.match": "countersign.yaml:4", "secrets.*.example.org.on_demand.wait": "countersign.yaml:5", "secrets.names.txt.match_file": "countersign.yaml:6",
		"secrets.*.example.org.on_demand.idle": "default", "secrets.*.example.org.providers": "provider",
	} {
		if from[path] != want {
			t.Errorf("%s is from %q, want %q", path, from[path], want)
		}
	}
	now, _ := mustLoad(t, strings.ReplaceAll(file, "2s", "3s"), nil)
	changed := Changed(c, now)
	if !slices.Equal(changed, []string{"secrets.*.example.org.on_demand.wait"}) || len(NeedRestart(changed)) > 0 {
		t.Errorf("changed are %q, of which %q need a restart", changed, NeedRestart(changed))
	}
	for _, s := range c.Sources() {
		if s.Name == "any that matches *.example.org, b.test" {
			return
		}
	}
	t.Errorf("the rule is missing in %v", c.Sources())
}

func TestRulesWithVeryManyNamesAreWarnedOf(t *testing.T) {
	rules := func(names string) string {
		return filed + `secrets: [{match: "*.a.test", on_demand: {names: ` + names + `}}, {match: "*.b.test", on_demand: {names: ` + names + `}}]`
	}
	c, _ := mustLoad(t, rules("200000"), nil)
	if got := strings.Join(c.Warnings(), "\n"); !strings.Contains(got, "400000 names together, which take about 4 GB") {
		t.Errorf("warned of %q", got)
	}
	if c, _ = mustLoad(t, rules("100000"), nil); len(c.Warnings()) > 0 {
		t.Errorf("warned of %q", c.Warnings())
	}
}
