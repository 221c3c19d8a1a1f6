package folder

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/xds"
)

const listener = `"@type": type.googleapis.com/envoy.config.listener.v3.Listener
name: ingress
address: {socket_address: {address: 0.0.0.0, port_value: 8080}}
filter_chains:
- filters:
  - name: http
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      %s
`

const aboutHTTP = `stat_prefix: ingress
      rds: {route_config_name: routes, config_source: {ads: {}}}`

func TestBadFileIsRefusedWithOneSentence(t *testing.T) {
	for name, c := range map[string]struct{ content, want string }{
		"empty":             {"", `empty file; write resources, or remove it`},
		"a comment":         {"# soon\n---\n", `empty file`},
		"no YAML":           {"a: [", `neither YAML nor JSON: yaml: line 1: did not find expected node content`},
		"a list":            {"- a", `document 1: unexpected list; write a resource with "@type"`},
		"text":              {"hello", `document 1: unexpected "hello"`},
		"unknown section":   {"resourcs: []", `document 1, resourcs: unknown key; did you mean "resources"?`},
		"foreign section":   {"admin: {}", `document 1, admin: unknown key; write a resource with "@type", or one of for, resources`},
		"no list":           {"resources: {}", `document 1, resources: unexpected mapping; write a list`},
		"no resource":       {"resources: [web]", `document 1, resources[0]: unexpected "web"; write a resource`},
		"no type":           {"resources: [{name: web}]", `document 1, resources[0].@type: missing`},
		"unknown type":      {"\"@type\": type.googleapis.com/envoy.api.v2.Cluster", `document 1, @type: unknown type "type.googleapis.com/envoy.api.v2.Cluster"`},
		"another type":      {"\"@type\": type.googleapis.com/envoy.config.core.v3.Node", `document 1, @type: resources of type "type.googleapis.com/envoy.config.core.v3.Node" cannot be served from this folder`},
		"a type, no URL":    {"\"@type\": Cluster", `"Cluster" is not a type URL`},
		"second document":   {cluster + "---\n" + cluster, `document 2: duplicate cluster "web" in this file`},
		"unknown field":     {cluster + "conect_timeout: 1s", `document 1, conect_timeout: unknown field of Cluster; did you mean "connect_timeout"?`},
		"deep field":        {cluster + "load_assignment: {cluster_name: a, endpoints: [{lb_endpoints: [{endpoint: {addrezz: {}}}]}]}", `document 1, load_assignment.endpoints[0].lb_endpoints[0].endpoint.addrezz: unknown field of Endpoint; did you mean "address"?`},
		"wrong value":       {cluster + "type: SOMETIMES", `document 1, type: invalid value for enum field type: "SOMETIMES"`},
		"wrong duration":    {cluster + "cleanup_interval: 5 minutes", `document 1, cleanup_interval: invalid google.protobuf.Duration value "5 minutes"`},
		"text for fields":   {cluster + "eds_cluster_config: web", `document 1, eds_cluster_config: unexpected "web"; write the fields of EdsClusterConfig`},
		"two of a one":      {cluster + "type: EDS\ncluster_type: {name: x}", `document 1: error parsing "type", oneof envoy.config.cluster.v3.Cluster.cluster_discovery_type is already set`},
		"in an Any":         {fmt.Sprintf(listener, "stat_prefx: a"), `document 1, filter_chains[0].filters[0].typed_config.stat_prefx: unknown field of HttpConnectionManager; did you mean "stat_prefix"?`},
		"unknown Any":       {fmt.Sprintf(listener, aboutHTTP+"\n      http_filters: [{name: a, typed_config: {\"@type\": type.googleapis.com/acme.Filter}}]"), `typed_config.http_filters[0].typed_config.@type: unknown type "type.googleapis.com/acme.Filter"; use types of Envoy's v3 API, without contrib`},
		"a rule":            {"\"@type\": " + ClusterURL + "\nname: a\nconnect_timeout: -1s", `document 1, connect_timeout: Envoy requires: value must be greater than 0s`},
		"a rule below":      {strings.Replace(endpoints("a"), "port_value: 80", "port_value: 70000", 1), `endpoints[0].lb_endpoints[0]`},
		"a rule in an Any":  {fmt.Sprintf(listener, "stat_prefix: \"\"\n      rds: {route_config_name: routes, config_source: {ads: {}}}"), `document 1, filter_chains[0].filters[0].typed_config.stat_prefix: Envoy requires: value length must be at least 1 runes`},
		"no name":           {"\"@type\": " + ListenerURL, `document 1, name: invalid resource name "": must not be empty`},
		"the wildcard":      {"\"@type\": " + ListenerURL + "\nname: \"*\"", `invalid resource name "*": * is the wildcard`},
		"a secret":          {"static_resources: {secrets: []}", `document 1, static_resources.secrets: secrets cannot be served from this folder`},
		"static":            {"static_resources: {clusters: [{name: a, x: 1}]}", `document 1, static_resources.clusters[0].x: unknown field of Cluster`},
		"a key twice":       {cluster + "name: x", `name: line 4: duplicate key`},
		"merge key":         {"a: &a {b: c}\nd: {<<: *a}", `merge keys (<<) are not supported`},
		"a tag":             {cluster + "alt_stat_name: !env HOME", `line 4: unsupported tag !env`},
		"deep":              {strings.Repeat("[", 200) + strings.Repeat("]", 200), `nested more than 100 levels deep`},
		"an alias to self":  {"a: &a [*a]", `nested more than 100 levels deep`},
		"a bomb":            {bomb(), `aliases expand it to more than 8388608 bytes`},
		"a bomb of nothing": {"a: &a [" + strings.Repeat("~,", 1000) + "]\nb: [" + strings.Repeat("*a,", 10_000) + "*a]", `aliases expand it to more than 8388608 bytes`},
		"a bomb of keys":    {"a: &a {" + strings.Repeat("k", 1000) + ": b}\nb: [" + strings.Repeat("*a,", 10_000) + "*a]", `aliases expand it to more than 8388608 bytes`},
		"bombs":             {strings.Repeat("a: &a "+strings.Repeat("k", 1000)+"\nb: ["+strings.Repeat("*a,", 5000)+"*a]\n---\n", 2), `document 2, b[`},
		"many documents":    {strings.Repeat("---\na\n", 10_001), `more than 10000 documents`},
		"late selector":     {cluster + "---\nfor: {namespaces: [a]}", `document 2, for: allowed only in the first document; it applies to the whole file`},
		"no selector":       {"for: everyone", `document 1, for: write the callers the file is for`},
		"selector's key":    {"for: {namespace: [a]}", `document 1, for.namespace: unknown key; did you mean "namespaces"?`},
		"no list of text":   {"for: {namespaces: a}", `document 1, for.namespaces: unexpected "a"; write a list of text, not empty`},
		"empty list":        {"for: {namespaces: []}", `for.namespaces: unexpected list; write a list of text, not empty`},
		"a number":          {"for: {labels: {version: 1}}", `for.labels: unexpected mapping; write labels with text as their values`},
		"claims alone":      {"for: {labels: {app: a}}", `document 1, for: node_ids and labels are unverified claims`},
		"anyone else":       {"for: {anyone: true, namespaces: [a]}", `for.anyone: cannot be combined with keys that select callers; remove one`},
		"wild domain":       {"for: {spiffe_ids: [\"spiffe://*/ns/a\"]}", `for.spiffe_ids: "spiffe://*/ns/a" is not a SPIFFE ID`},
		"no domain":         {"for: {trust_domains: [\"spiffe://a\"]}", `for.trust_domains: "spiffe://a" is not a trust domain`},
		"no account":        {"for: {service_accounts: [gateway]}", `for.service_accounts: "gateway" is not a service account; write namespace/name`},
		"no addresses":      {"hosts: {a.example.org: {}}", `document 1, hosts.a.example.org.ips: write one or more addresses of the host`},
		"no address":        {"hosts: {a.example.org: {ips: [b]}}", `document 1, hosts.a.example.org.ips[0]: "b" is not an IP address`},
		"no host":           {"hosts: {\"a.\": {ips: [10.0.0.1]}}", `not a host name`},
		"a type, no text":   {"\"@type\": 1", `document 1, @type: missing`},
		"a type, no slash":  {"\"@type\": envoy.config.cluster.v3.Cluster", `document 1, @type: "envoy.config.cluster.v3.Cluster" is not a type URL`},
		"nothing":           {"resources:", `document 1, resources: unexpected empty value; write a list`},
		"static, a list":    {"static_resources: []", `document 1, static_resources: unexpected list; write "listeners:" and "clusters:" below it`},
		"static routes":     {"static_resources: {routes: []}", `document 1, static_resources.routes: only listeners and clusters are allowed here`},
		"no endpoints' ID":  {"\"@type\": " + EndpointURL, `document 1, cluster_name: invalid resource name "": must not be empty`},
		"fields for text":   {cluster + "cleanup_interval: {seconds: 5}", `document 1, cleanup_interval: unexpected token {`},
		"a list for one":    {cluster + "alt_stat_name: [a]", `document 1, alt_stat_name: invalid value for string field`},
		"fields for list":   {cluster + "health_checks: {a: b}", `document 1, health_checks: unexpected token {`},
		"text in a list":    {cluster + "health_checks: [a]", `document 1, health_checks[0]: unexpected "a"; write the fields of HealthCheck`},
		"a list for a map":  {cluster + "typed_extension_protocol_options: [a]", `document 1, typed_extension_protocol_options: unexpected token [`},
		"text for an Any":   {cluster + "typed_extension_protocol_options: {a: b}", `typed_extension_protocol_options.a: unexpected "b"; write the fields of Any`},
		"Any, no type":      {cluster + "typed_extension_protocol_options: {a: {name: b}}", `typed_extension_protocol_options.a.@type: missing`},
		"Any, no slash":     {cluster + "typed_extension_protocol_options: {a: {\"@type\": envoy.config.cluster.v3.Cluster, name: b}}", `typed_extension_protocol_options.a.@type: "envoy.config.cluster.v3.Cluster" is not a type URL`},
		"Any of JSON's":     {cluster + "typed_extension_protocol_options: {a: {\"@type\": type.googleapis.com/google.protobuf.Duration, value: 5 min}}", `typed_extension_protocol_options.a.value: invalid google.protobuf.Duration value "5 min"`},
		"beside it":         {cluster + "typed_extension_protocol_options: {a: {\"@type\": type.googleapis.com/google.protobuf.Duration, value: 5s, x: 1}}", `typed_extension_protocol_options.a: unknown field "x"`},
		"Any of nothing":    {cluster + "typed_extension_protocol_options: {a: {\"@type\": type.googleapis.com/google.protobuf.Empty, x: 1}}", `typed_extension_protocol_options.a.x: unknown field of Empty`},
		"JSON's spelling":   {cluster + "loadAssignment: {clusterName: 5}", `document 1, loadAssignment.clusterName: invalid value for string field`},
		"rule in a map":     {cluster + "typed_extension_protocol_options: {a: {\"@type\": " + ClusterURL + ", name: b, connect_timeout: -1s}}", `typed_extension_protocol_options.a.connect_timeout: Envoy requires`},
		"not finite":        {cluster + "common_lb_config: {healthy_panic_threshold: {value: .inf}}", `document 1, common_lb_config.healthy_panic_threshold.value: Envoy requires`},
		"one of many":       {cluster + "typed_extension_protocol_options: {" + options(20) + "z: {\"@type\": " + ClusterURL + "}}", `typed_extension_protocol_options.z.name: Envoy requires`},
		"one of fields":     {cluster + "cleanup_interval: 5s\ntransport_socket: {name: a, typed_config: {\"@type\": " + ClusterURL + "}}\nload_balancing_policy: {}\nupstream_connection_options: {tcp_keepalive: {}}\ndns_refresh_rate: 5s\n", `transport_socket.typed_config.name: Envoy requires`},
		"a host's brace":    {"hosts: {\"a{\": {ips: [10.0.0.1]}}", `not a host name`},
		"a host's bracket":  {"hosts: {\"a[\": {ips: [10.0.0.1]}}", `not a host name`},
		"a tag of a list":   {"resources: !env []", `document 1, resources: line 1: unsupported tag !env`},
		"a tag of a map":    {"!env {resources: []}", `document 1: line 1: unsupported tag !env`},
		"a tag of a key":    {"? !env HOME\n: []", `document 1: line 1: unsupported tag !env`},
		"a key of a list":   {"? [a]\n: b", `document 1: line 1: a key must be a string`},
		"no number":         {cluster + "alt_stat_name: !!int a", `document 1, alt_stat_name: line 4: yaml: cannot decode`},
		"selector of none":  {"for: {}", `document 1, for: write the callers the file is for`},
		"far selector key":  {"for: {everybody_else: true}", `document 1, for.everybody_else: unknown key; must be one of anyone, trust_domains`},
		"nobody":            {"for: {anyone: false}", `document 1, for.anyone: unexpected "false"; write true`},
		"no labels":         {"for: {anyone: true, labels: {}}", `document 1, for.labels: unexpected mapping; write labels with text`},
		"list of numbers":   {"for: {namespaces: [1]}", `document 1, for.namespaces: unexpected list; write a list of text`},
		"empty text":        {"for: {namespaces: [\"\"]}", `document 1, for.namespaces: unexpected list; write a list of text`},
		"account's part":    {"for: {service_accounts: [a/b/c]}", `document 1, for.service_accounts: "a/b/c" is not a service account`},
		"ids alone":         {"for: {node_ids: [a]}", `document 1, for: node_ids and labels are unverified claims`},
		"many entries":      {"for: {namespaces: [" + strings.Repeat("a, ", 1000) + "a]}", `document 1, for.namespaces: 1001 entries, more than 1000`},
		"hosts, a list":     {"hosts: [a]", `document 1, hosts: unexpected list; write host names`},
		"no host's fields":  {"hosts: {a: }", `document 1, hosts.a: unexpected empty value; write the fields of NameInfo`},
		"a host twice":      {"hosts: {a: {ips: [10.0.0.1]}}\n---\nhosts: {a: {ips: [10.0.0.2]}}", `document 2, hosts.a: duplicate host in this file`},
		"host of nothing":   {"hosts: {\"\": {ips: [10.0.0.1]}}", `not a host name`},
		"host of a URL":     {"hosts: {\"a/b\": {ips: [10.0.0.1]}}", `not a host name`},
		"host and port":     {"hosts: {\"a:80\": {ips: [10.0.0.1]}}", `not a host name`},
		"host of lines":     {"hosts: {\"a\\nb\": {ips: [10.0.0.1]}}", `document 1, hosts.a\nb: not a host name`},
		"address of zone":   {"hosts: {a: {ips: [\"fe80::1%eth0\"]}}", `hosts.a.ips[0]: "fe80::1%eth0" is not an IP address`},
		"host's field":      {"hosts: {a: {ip: [10.0.0.1]}}", `document 1, hosts.a.ip: unknown field of NameInfo; did you mean "ips"?`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(c.content))
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "\u00a0", " "), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// options are so many good ones.
func options(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "o%d: {\"@type\": %s, name: a}, ", i, ClusterURL)
	}
	return b.String()
}

// bomb is a file of a few hundred bytes that would be gigabytes.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [xxxxxxxxxx]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return b.String()
}

func TestEachFileFormIsRead(t *testing.T) {
	web, names := key{ClusterURL, "web"}, key{NameTableURL, "db.example.org"}
	for name, c := range map[string]struct {
		content string
		want    []key
	}{
		"bare":           {cluster, []key{web}},
		"JSON":           {"{\n\t\"@type\": \"" + ClusterURL + "\",\n\t\"name\": \"web\",\n\t\"connectTimeout\": \"1s\"\n}", []key{web}},
		"documents":      {"---\n" + cluster + "---\n" + endpoints("10.0.0.1") + "---\n", []key{web, {EndpointURL, "web"}}},
		"discovery file": {"version_info: \"7\"\nresources:\n- {\"@type\": " + ClusterURL + ", name: web}", []key{web}},
		"bootstrap":      {"static_resources: {clusters: [{name: web}], listeners: [{name: in}]}", []key{web, {ListenerURL, "in"}}},
		"late selector":  {"# nothing\n---\n---\nfor: {clusters: [east]}\n---\n" + cluster, []key{web}},
		"empty Any":      {cluster + "typed_extension_protocol_options: {a: {}}", []key{web}},
		"a map of text":  {cluster + "typed_extension_protocol_options: {a: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute, check_settings: {context_extensions: {a: b}}}}", []key{web}},
		"wild host":      {"hosts: {\"*.Example_1.org\": {ips: [10.0.0.1]}}", []key{{NameTableURL, "*.Example_1.org"}}},
		"an alias":       {"static_resources: {clusters: [{name: web, connect_timeout: &t 1s}, {name: b, connect_timeout: *t}]}", []key{web, {ClusterURL, "b"}}},
		"hosts":          {"hosts: {db.example.org: {ips: [10.0.0.1, \"2001:db8::1\"], registry: External}}", []key{names}},
		"a selector":     {"for: {clusters: [east]}\n---\n" + cluster, []key{web}},
		"all of it":      {"for: {clusters: [east]}\nresources: [{\"@type\": " + ClusterURL + ", name: web}]\nhosts: {db.example.org: {ips: [10.0.0.1]}}", []key{web, names}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parse([]byte(c.content))
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range c.want {
				if f.versions[k] == "" {
					t.Errorf("no %s", k)
				}
			}
			if len(f.versions) != len(c.want) {
				t.Errorf("got %d resources, want %d", len(f.versions), len(c.want))
			}
		})
	}
}

func TestVersionDependsOnContent(t *testing.T) {
	a, errA := parse([]byte("resources: [{\"@type\": " + ClusterURL + ", name: web, connect_timeout: 1s}]"))
	b, errB := parse([]byte("# the same, by other words\n" + strings.Replace(cluster, "connect_timeout", "connectTimeout", 1)))
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	web := key{ClusterURL, "web"}
	if a.versions[web] != b.versions[web] {
		t.Errorf("versions %s and %s of the same", a.versions[web], b.versions[web])
	}
}

// Protobuf may write the entries of a map in any order.
func TestVersionIsDeterministic(t *testing.T) {
	content := []byte(cluster + "metadata: {filter_metadata: {a: {}, b: {}, c: {}, d: {}, e: {}, f: {}}}")
	versions := map[string]bool{}
	for range 20 {
		f, err := parse(content)
		if err != nil {
			t.Fatal(err)
		}
		versions[f.versions[key{ClusterURL, "web"}]] = true
	}
	if len(versions) != 1 {
		t.Errorf("%d versions of the same", len(versions))
	}
}

func TestClusterWithoutEndpointsReferencesNone(t *testing.T) {
	f, err := parse([]byte(cluster + "type: STATIC"))
	if err != nil || len(f.refs) != 0 || len(f.resources[key{ClusterURL, "web"}].Refreshes) != 0 {
		t.Errorf("%v, %v", f, err)
	}
}

func TestFileListsItsReferences(t *testing.T) {
	f, err := parse([]byte(fmt.Sprintf(listener, aboutHTTP) + "---\n" + cluster + `type: EDS
eds_cluster_config: {service_name: web-eds, eds_config: {ads: {}}}
---
"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
name: routes
virtual_hosts:
- name: all
  domains: ["*"]
  routes:
  - {match: {prefix: /a}, route: {cluster: a}}
  - {match: {prefix: /}, route: {weighted_clusters: {clusters: [{name: b, weight: 1}]}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.resources[key{ClusterURL, "web"}].Refreshes; !slices.Equal(got, []xds.Ref{{Type: EndpointURL, Name: "web-eds"}}) {
		t.Errorf("the cluster refreshes %v", got)
	}
	for _, want := range []ref{{RouteURL, "routes"}, {EndpointURL, "web-eds"}, {ClusterURL, "a"}, {ClusterURL, "b"}} {
		if !slices.Contains(f.refs, want) {
			t.Errorf("%s is missing in %v", want, f.refs)
		}
	}
}
