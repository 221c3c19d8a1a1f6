// Package bootstrap finds in an Envoy bootstrap what does not fit certificates on demand: see
// docs/on-demand.md. [Faults] checks a file, and [FileOf] returns that of Envoy's command line.
package bootstrap

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/host/safefile"
)

const (
	selectorType = "cert_selectors.on_demand_secret.v3.Config"
	// usualRequests is max_requests of a circuit breaker where none is written.
	usualRequests = 1024
	// maxFile bounds what is read.
	maxFile = 32 << 20
)

// FileOf returns the bootstrap that a command line of Envoy names; empty if it names none, or starts
// another program, whose flags mean something else.
func FileOf(command []string) string {
	if len(command) == 0 || !strings.Contains(filepath.Base(command[0]), "envoy") {
		return ""
	}
	for i, arg := range command {
		for _, flag := range []string{"-c", "--config-path"} {
			if value, ok := strings.CutPrefix(arg, flag+"="); ok {
				return value
			}
			if arg == flag && i+1 < len(command) {
				return command[i+1]
			}
		}
	}
	return ""
}

// Faults returns what is wrong in the bootstrap for up to so many names, one sentence each. A bootstrap
// without the on-demand selector has none.
func Faults(path string, names int) []string {
	content, err := safefile.Read(path, maxFile)
	if err != nil {
		return []string{err.Error()}
	}
	var root any
	if yaml.Unmarshal(content, &root) != nil { // its error quotes the file
		return []string{path + ": invalid bootstrap: it is neither YAML nor JSON"}
	}
	b := bootstrap{names: names, root: node(snake(root))}
	b.walk(b.root, place{})
	for i, fault := range b.faults {
		b.faults[i] = path + ": " + fault
	}
	slices.Sort(b.faults)
	return slices.Compact(b.faults) // many filter chains may have the same one
}

type bootstrap struct {
	names  int
	root   node
	faults []string
}

// node is an object, or nil.
type node map[string]any

func (n node) at(keys ...string) node {
	for _, key := range keys {
		n, _ = n[key].(map[string]any)
	}
	return n
}

func (n node) text(key string) string {
	text, _ := n[key].(string)
	return text
}

func (n node) list(key string) (all []node) {
	list, _ := n[key].([]any)
	for _, item := range list {
		object, _ := item.(map[string]any)
		all = append(all, object)
	}
	return all
}

// snake writes the names of fields as proto does: Envoy reads lowerCamelCase, too.
func snake(value any) map[string]any {
	object, _ := snaked(value).(map[string]any)
	return object
}

func snaked(value any) any {
	switch v := value.(type) {
	case map[string]any:
		all := make(map[string]any, len(v))
		for key, below := range v {
			all[snakeKey(key)] = snaked(below)
		}
		return all
	case []any:
		for i := range v {
			v[i] = snaked(v[i])
		}
	}
	return value
}

func snakeKey(key string) string {
	var out strings.Builder
	for _, r := range key {
		if unicode.IsUpper(r) {
			out.WriteByte('_')
			r = unicode.ToLower(r)
		}
		out.WriteRune(r)
	}
	return out.String()
}

// place is what the fields around a selector set.
type place struct {
	limited bool // handshakes have a timeout
	full    bool // no session is resumed
}

// within returns the place of what is below an object.
func (p place) within(n node) place {
	p.limited = p.limited || n["transport_socket_connect_timeout"] != nil
	p.full = p.full || n["disable_stateless_session_resumption"] == true && n["disable_stateful_session_resumption"] == true
	return p
}

// walk checks each selector below a node.
func (b *bootstrap) walk(value any, at place) {
	switch v := value.(type) {
	case node:
		b.walk(map[string]any(v), at)
	case map[string]any:
		at = at.within(v)
		if strings.HasSuffix(node(v).text("@type"), selectorType) {
			b.selector(v, at)
		}
		for _, below := range v {
			b.walk(below, at)
		}
	case []any:
		for _, below := range v {
			b.walk(below, at)
		}
	}
}

func (b *bootstrap) say(format string, args ...any) {
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// selector checks an on-demand selector.
func (b *bootstrap) selector(s node, at place) {
	source := s.at("config_source")
	api, single := source.at("api_config_source"), true
	if source["ads"] != nil {
		api, single = b.root.at("dynamic_resources", "ads_config"), false
	}
	if kind := api.text("api_type"); api != nil && !strings.HasPrefix(kind, "DELTA_") && !strings.HasPrefix(kind, "AGGREGATED_DELTA_") {
		b.say("it asks for certificates on demand by state of the world (api_type %s): a handshake for a refused name hangs until its client gives up; write DELTA_GRPC", cmp.Or(kind, "GRPC"))
	}
	if api != nil && single {
		b.breaker(api)
	}
	if !at.full {
		b.say("Envoy refuses the on-demand selector while sessions can be resumed; write disable_stateless_session_resumption: true and disable_stateful_session_resumption: true beside common_tls_context (the cost of each connection is in docs/on-demand.md)")
	}
	if !at.limited {
		b.say("transport_socket_connect_timeout is not set in the filter chain: a handshake waits without a limit while the agent does not answer; write a little more than on_demand.wait")
	}
}

// breaker checks the circuit breaker of a cluster that has a stream for each name. Google's client has
// no cluster.
func (b *bootstrap) breaker(api node) {
	for _, service := range api.list("grpc_services") {
		name := service.at("envoy_grpc").text("cluster_name")
		if most := b.maxRequests(name); name != "" && most < b.names {
			b.say("it opens a stream for each name (api_config_source), and max_requests of the cluster %.64q is %d for %d names: further ones fail; use ads, or raise it", name, most, b.names)
		}
	}
}

// maxRequests returns the circuit breaker's limit of a cluster.
func (b *bootstrap) maxRequests(cluster string) int {
	for _, c := range b.root.at("static_resources").list("clusters") {
		if c.text("name") != cluster {
			continue
		}
		for _, t := range c.at("circuit_breakers").list("thresholds") {
			if most, ok := t["max_requests"].(float64); ok && t.text("priority") != "HIGH" {
				return int(most)
			}
		}
	}
	return usualRequests
}
