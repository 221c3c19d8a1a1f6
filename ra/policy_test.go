package ra_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/ra"
)

// web is a pod that nothing is wrong with.
func web() ra.Subject {
	return ra.Subject{
		Kind: ra.Pod, Cluster: "home", Namespace: "shop", ServiceAccount: "web", ServiceAccountUID: "sa-1",
		Pod: "web-7d9f", PodUID: "pod-1", Node: "node-1", NodeUID: "n-1", Verified: "pod certificate request",
	}
}

func with(change func(*ra.Subject)) ra.Subject {
	s := web()
	change(&s)
	return s
}

func policy(t testing.TB, rules ...ra.Rule) *ra.Policy {
	t.Helper()
	p, err := ra.NewPolicy("home", rules)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mesh() ra.Rule {
	return ra.Rule{
		Name: "mesh", Authority: "ca",
		Names: ra.Names{SPIFFEID: "spiffe://example.org/ns/{namespace}/sa/{serviceAccount}"},
	}
}

// dns is a rule whose names have each attribute in a label.
func dns() ra.Rule {
	return ra.Rule{Name: "dns", Authority: "ca", Names: ra.Names{DNSNames: []string{"{pod}.{namespace}.pod.example.org"}}}
}

func TestAttributesFillOneLabelOrSegmentOnly(t *testing.T) {
	label := func(pod string) ra.Subject { return with(func(s *ra.Subject) { s.Pod = pod }) }
	segment := func(account string) ra.Subject { return with(func(s *ra.Subject) { s.ServiceAccount = account }) }
	const id = "spiffe://example.org/ns/shop/sa/"
	for name, c := range map[string]struct {
		rule    ra.Rule
		subject ra.Subject
		names   string // empty: denied
	}{
		"label":                                {dns(), label("web-0"), "web-0.shop.pod.example.org"},
		"label of digits":                      {dns(), label("0"), "0.shop.pod.example.org"},
		"label of 63 bytes":                    {dns(), label(strings.Repeat("a", 63)), strings.Repeat("a", 63) + ".shop.pod.example.org"},
		"label with a dot":                     {dns(), label("payments.prod"), ""},
		"label that is a dot":                  {dns(), label("."), ""},
		"label with a dot at its end":          {dns(), label("web."), ""},
		"label with a dot at its begin":        {dns(), label(".web"), ""},
		"label with an ideographic stop":       {dns(), label("web。prod"), ""},
		"label of two dots":                    {dns(), label(".."), ""},
		"label with a slash":                   {dns(), label("a/b"), ""},
		"label in upper case":                  {dns(), label("Web"), ""},
		"label of 64 bytes":                    {dns(), label(strings.Repeat("a", 64)), ""},
		"label of 253 bytes":                   {dns(), label(strings.Repeat("a", 253)), ""},
		"label that is a wildcard":             {dns(), label("*"), ""},
		"label with a wildcard":                {dns(), label("web*"), ""},
		"label with an underscore":             {dns(), label("_acme-challenge"), ""},
		"label that begins with a dash":        {dns(), label("-web"), ""},
		"label that ends with a dash":          {dns(), label("web-"), ""},
		"label in Cyrillic":                    {dns(), label("wеb"), ""},
		"label in Punycode":                    {dns(), label("xn--wb-fkc"), ""},
		"label with a percent escape":          {dns(), label("web%2eprod"), ""},
		"label with a NUL":                     {dns(), label("web\x00"), ""},
		"label with a line feed":               {dns(), label("web\n"), ""},
		"label with a space":                   {dns(), label("web prod"), ""},
		"label that is a template":             {dns(), label("{namespace}"), ""},
		"label in another encoding than UTF-8": {dns(), label("web\xff"), ""},
		"label that is an address":             {dns(), label("10.0.0.1"), ""},
		"namespace with a dot":                 {dns(), with(func(s *ra.Subject) { s.Namespace = "shop.com" }), ""},
		"segment":                              {mesh(), segment("web"), id + "web"},
		"segment with a dot":                   {mesh(), segment("web.v1"), id + "web.v1"},
		"segment in upper case":                {mesh(), segment("Web"), id + "Web"},
		"segment with a slash":                 {mesh(), segment("web/sa/admin"), ""},
		"segment with a slash at its end":      {mesh(), segment("web/"), ""},
		"segment of one dot":                   {mesh(), segment("."), ""},
		"segment of two dots":                  {mesh(), segment(".."), ""},
		"segment that climbs":                  {mesh(), segment("../../ns/kube-system"), ""},
		"segment of three dots":                {mesh(), segment("..."), id + "..."},
		"segment with a percent escape":        {mesh(), segment("web%2fadmin"), ""},
		"segment with a query":                 {mesh(), segment("web?x=1"), ""},
		"segment with a fragment":              {mesh(), segment("web#x"), ""},
		"segment with a colon":                 {mesh(), segment("system:web"), ""},
		"segment with an at sign":              {mesh(), segment("web@evil.org"), ""},
		"segment with a NUL":                   {mesh(), segment("web\x00"), ""},
		"segment with a wildcard":              {mesh(), segment("*"), ""},
		"segment with a backslash":             {mesh(), segment(`web\admin`), ""},
		"segment in Cyrillic":                  {mesh(), segment("wеb"), ""},
		"segment of 254 bytes":                 {mesh(), segment(strings.Repeat("a", 254)), ""},
		"segment that turns right to left":     {mesh(), segment("web\u202e"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := policy(t, c.rule).Try(c.subject, "door")
			if got := d.Identity.String(); got != c.names || (d.Denied == "") != (c.names != "") {
				t.Errorf("granted %q (denied: %q), want %q", got, d.Denied, c.names)
			}
		})
	}
}

func TestMissingAttributeGrantsNothing(t *testing.T) {
	account := ra.Subject{Kind: ra.ServiceAccount, Cluster: "home", Namespace: "shop", ServiceAccount: "web"}
	d := policy(t, dns(), mesh()).Try(account, "door")
	if !d.Identity.IsZero() || !strings.Contains(d.Denied, `the pod "" cannot stand in`) || d.Rule != "dns" {
		t.Errorf("got %+v; the rule that matched decides, and the next must not", d)
	}
}

func TestWrongTemplateIsRefusedAtConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		names ra.Names
		error string
	}{
		"no name":                          {ra.Names{}, "it grants no name"},
		"two attributes in a label":        {ra.Names{DNSNames: []string{"{pod}-{namespace}.example.org"}}, "neither a text nor one {attribute}"},
		"attribute and text in a label":    {ra.Names{DNSNames: []string{"pod-{pod}.example.org"}}, "neither a text nor one {attribute}"},
		"attribute and text in a segment":  {ra.Names{SPIFFEID: "spiffe://example.org/sa-{serviceAccount}"}, "neither a text nor one {attribute}"},
		"attribute that a node writes":     {ra.Names{DNSNames: []string{"{podIP}.example.org"}}, "not a verified attribute"},
		"attribute that a pod writes":      {ra.Names{SPIFFEID: "spiffe://example.org/{labels.app}"}, "not a verified attribute"},
		"attribute without a name":         {ra.Names{SPIFFEID: "spiffe://example.org/{}"}, "not a verified attribute"},
		"attribute as the trust domain":    {ra.Names{SPIFFEID: "spiffe://{cluster}/sa/{serviceAccount}"}, "takes its trust domain from an attribute"},
		"attribute as the last label":      {ra.Names{DNSNames: []string{"{serviceAccount}.{namespace}"}}, "write the last label out"},
		"attribute as an address":          {ra.Names{IPAddresses: []string{"{podIP}"}}, "is not valid"},
		"brace that is open":               {ra.Names{DNSNames: []string{"{pod.example.org"}}, "neither a text nor one {attribute}"},
		"brace within a brace":             {ra.Names{DNSNames: []string{"{{pod}}.example.org"}}, "neither a text nor one {attribute}"},
		"SPIFFE ID of another scheme":      {ra.Names{SPIFFEID: "https://example.org/{pod}"}, "is not a SPIFFE ID"},
		"SPIFFE ID without a path":         {ra.Names{SPIFFEID: "spiffe://example.org"}, "is not a SPIFFE ID"},
		"SPIFFE ID with an empty segment":  {ra.Names{SPIFFEID: "spiffe://example.org//{pod}"}, "a path segment is empty"},
		"trust domain in upper case":       {ra.Names{SPIFFEID: "spiffe://Example.org/{pod}"}, "a trust domain has lower-case"},
		"wildcard inside":                  {ra.Names{DNSNames: []string{"{pod}.*.example.org"}}, "is not valid"},
		"empty label":                      {ra.Names{DNSNames: []string{"{pod}..example.org"}}, "is not valid"},
		"template of more than 2048 bytes": {ra.Names{DNSNames: []string{strings.Repeat("a.", 1200)}}, "are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ra.NewPolicy("home", []ra.Rule{{Name: "r", Authority: "ca", Names: c.names}})
			if err == nil || !strings.Contains(err.Error(), c.error) || !strings.Contains(err.Error(), `rule 1 ("r")`) {
				t.Errorf("got %v, want %q", err, c.error)
			}
		})
	}
}

func TestWrongRuleIsRefusedAtConfiguration(t *testing.T) {
	for text, change := range map[string]func(*ra.Rule){
		"needs a name that prints":       func(r *ra.Rule) { r.Name = "a\nb" },
		"names no authority":             func(r *ra.Rule) { r.Authority = "" },
		"longest lifetime is -1s":        func(r *ra.Rule) { r.MaxTTL = -time.Second },
		`key type "rsa-1024"`:            func(r *ra.Rule) { r.KeyTypes = []string{"rsa-1024"} },
		`usages "signer"`:                func(r *ra.Rule) { r.Usages = "signer" },
		`the kind "container"`:           func(r *ra.Rule) { r.Match.Kinds = []ra.Kind{"container"} },
		`the namespace "a*b*"`:           func(r *ra.Rule) { r.Match.Namespaces = []string{"a*b*"} },
		`the serviceAccount ""`:          func(r *ra.Rule) { r.Match.ServiceAccounts = []string{""} },
		"another rule has the same name": func(r *ra.Rule) { r.Name = "dns" },
	} {
		r := mesh()
		change(&r)
		if _, err := ra.NewPolicy("home", []ra.Rule{dns(), r}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	if _, err := ra.NewPolicy("", nil); err == nil {
		t.Error("a policy without a home cluster is taken")
	}
}

func TestFirstMatchingRuleDecides(t *testing.T) {
	prod := mesh()
	prod.Name, prod.Match, prod.Authority = "prod", ra.Match{Namespaces: []string{"prod-*"}, Kinds: []ra.Kind{ra.Pod}}, "hsm"
	doors := mesh()
	doors.Name, doors.Match = "csr", ra.Match{Doors: []string{"csr"}}
	far := mesh()
	far.Name, far.Match = "far", ra.Match{Clusters: []string{"*"}, ServiceAccounts: []string{"*-web"}}
	p := policy(t, prod, doors, far, mesh())
	for rule, c := range map[string]struct {
		subject ra.Subject
		door    string
	}{
		"prod": {with(func(s *ra.Subject) { s.Namespace = "prod-eu" }), "csr"},
		"csr":  {web(), "csr"},
		"far":  {with(func(s *ra.Subject) { s.Cluster, s.ServiceAccount = "east", "eu-web" }), "istio"},
		"mesh": {web(), "istio"},
	} {
		if d := p.Try(c.subject, c.door); d.Rule != rule || d.Denied != "" {
			t.Errorf("want rule %q, got %+v", rule, d)
		}
		explained := p.Try(c.subject, c.door)
		explained.Passed = nil
		if d := p.Decide(c.subject, c.door); !reflect.DeepEqual(d, explained) {
			t.Errorf("decided %+v, tried %+v", d, explained)
		}
	}
	if d := p.Try(web(), "istio"); len(d.Passed) != 3 || !strings.Contains(d.Passed[0].Why, `namespace ["prod-*"], not "shop"`) {
		t.Errorf("the rules before are not explained: %+v", d.Passed)
	}
}

func TestRuleWithoutClustersIsForHomeAlone(t *testing.T) {
	p := policy(t, mesh())
	for cluster, granted := range map[string]bool{"home": true, "east": false, "": false, "*": false, "HOME": false} {
		d := p.Try(with(func(s *ra.Subject) { s.Cluster = cluster }), "door")
		if (d.Denied == "") != granted {
			t.Errorf("cluster %q: %+v", cluster, d)
		}
	}
}

func TestAbsentAttributeFitsNoPattern(t *testing.T) {
	r := mesh()
	r.Match.Nodes = []string{"*"}
	account := ra.Subject{Kind: ra.ServiceAccount, Cluster: "home", Namespace: "shop", ServiceAccount: "web"}
	if d := policy(t, r).Try(account, "door"); d.Denied != "no rule matches" {
		t.Errorf("got %+v", d)
	}
}

func TestIncompleteSubjectIsDenied(t *testing.T) {
	for name, change := range map[string]func(*ra.Subject){
		"no kind":      func(s *ra.Subject) { s.Kind = "" },
		"unknown kind": func(s *ra.Subject) { s.Kind = "root" },
		"no namespace": func(s *ra.Subject) { s.Namespace = "" },
		"no UID":       func(s *ra.Subject) { s.PodUID = "" },
		"long node":    func(s *ra.Subject) { s.Node = strings.Repeat("n", 1<<20) },
		"long proof":   func(s *ra.Subject) { s.Verified = strings.Repeat("n", 1<<20) },
	} {
		if d := policy(t, mesh()).Try(with(change), "door"); d.Denied == "" || len(d.Denied) > 600 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// Names that an operator writes are checked like all others.
func TestFixedNamesAreGranted(t *testing.T) {
	r := ra.Rule{Name: "gateway", Authority: "ca", Match: ra.Match{ServiceAccounts: []string{"web"}}, Names: ra.Names{
		SPIFFEID: "spiffe://example.org/gateway", DNSNames: []string{"*.shop.example.org", "{serviceAccount}.{namespace}.svc"}, IPAddresses: []string{"192.0.2.1"},
	}}
	if got := policy(t, r).Try(web(), "door").Identity.String(); got != "spiffe://example.org/gateway, *.shop.example.org, web.shop.svc, 192.0.2.1" {
		t.Error(got)
	}
}
