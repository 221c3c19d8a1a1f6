package config

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/internal/text"
)

// Explained is one effective setting.
type Explained struct {
	Setting string `json:"setting"` // its path
	Value   any    `json:"value"`   // as in the file; "(set)" hides a credential
	From    string `json:"from"`    // the flag, variable or FILE:LINE, the setting it is derived from, or "default"
}

// Explain returns every setting with its origin, in the order of the file, without
// credentials.
func (c *Config) Explain() []Explained { return c.explain(false) }

// explain is Explain, optionally with the credentials, to compare them.
func (c *Config) explain(bare bool) []Explained {
	e := explainer{config: c, bare: bare}
	e.walk(reflect.ValueOf(*c), "")
	return e.all
}

type explainer struct {
	config *Config
	bare   bool // credentials are not hidden
	all    []Explained
	// secrets are the secret settings of the provider that is explained.
	secrets reference.Paths
}

// visibility is what is known about a map: a provider's settings, or variables and such.
func (e *explainer) visibility(t reflect.Type) visibility {
	if t != reflect.TypeFor[map[string]any]() {
		return visibility{known: true}
	}
	return visibility{e.secrets.Root(), e.secrets != nil}
}

func (e *explainer) walk(v reflect.Value, path string) {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch t := v.Type(); {
	case isScalar(t):
		e.add(path, v)
	case t.Kind() == reflect.Struct:
		e.fields(v, path)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			if entry, ok := reflect.TypeAssert[Provider](v.Index(i)); ok {
				e.secrets = entry.secretSettings()
			}
			e.walk(v.Index(i), join(path, labelOf(v.Index(i), i)))
		}
	case t.Kind() == reflect.Map:
		see := e.visibility(t)
		for _, key := range slices.Sorted(maps.Keys(entries(v))) {
			e.pass(join(path, key), entries(v)[key], e.from(path, false), see.below(key))
		}
	default:
		e.add(path, v)
	}
}

// labelOf is label for an entry that is already decoded.
func labelOf(entry reflect.Value, i int) string {
	if name := entry.FieldByName("Name"); name.IsValid() && name.String() != "" {
		return name.String()
	}
	return strconv.Itoa(i)
}

func (e *explainer) fields(v reflect.Value, path string) {
	for i := range v.NumField() {
		switch field := v.Type().Field(i); {
		case !field.IsExported() || field.Tag.Get("json") == "-":
		case field.Anonymous:
			e.fields(v.Field(i), path)
		default:
			e.walk(v.Field(i), join(path, field.Tag.Get("json")))
		}
	}
}

// isScalar reports whether a type is written as text, or not at all.
func isScalar(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func entries(v reflect.Value) map[string]any {
	all := map[string]any{}
	for key, value := range v.Seq2() {
		all[key.String()] = value.Interface()
	}
	return all
}

func (e *explainer) add(path string, v reflect.Value) {
	value := v.Interface()
	if _, ok := value.(fmt.Stringer); ok && v.Kind() != reflect.Pointer {
		value = fmt.Sprint(value)
	}
	if words, ok := value.(string); ok && !e.bare {
		value = text.WithoutPassword(words)
	}
	e.all = append(e.all, Explained{path, value, e.from(path, !isEmpty(v))})
}

func isEmpty(v reflect.Value) bool {
	return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
}

const byDefault = "default"

// from returns the origin of a setting; one that was not set may be derived from another.
func (e *explainer) from(path string, hasValue bool) string {
	c := e.config
	if origin := c.origins[path]; origin != "" {
		return origin
	}
	if c.written[path] {
		return c.place(path)
	}
	if rule := c.rule(path); hasValue && rule != "" {
		return rule
	}
	return byDefault
}

// providerOf returns the provider of an entry.
func (c *Config) providerOf(entry string) string {
	for _, p := range c.Providers {
		if p.Name == entry {
			return p.Provider
		}
	}
	return ""
}

// rule names the settings that an unset setting is derived from.
func (c *Config) rule(path string) string {
	list, rest, _ := strings.Cut(path, ".")
	name, setting := cutLast(rest)
	switch {
	case path == "default_provider":
		return c.choice.Rule
	case path == "workload_api.jwt_svid.provider":
		return "default_provider"
	case list == "providers" && strings.HasSuffix(rest, ".token.file"):
		return istiocompat.TokenRule(c.providerOf(strings.TrimSuffix(rest, ".token.file")))
	case list == "providers" && strings.Contains(name, ".token.exchange."):
		return "settings.exchange" // the step that completeExchange adds
	case list == "providers" && strings.Contains(name, "."):
		return "" // deeper in an entry
	case list == "providers" && setting == "provider":
		return "its name"
	case strings.HasPrefix(path, "files.secrets."):
		return "files.mounted"
	case strings.HasPrefix(path, "spire.secrets."):
		return spireRule(path)
	case list == "bundle_endpoints" && setting == "name":
		return "trust_domain"
	case list != "secrets":
		return ""
	case name == RootCA && strings.HasPrefix(setting, "provider"):
		return "secrets." + DefaultSecret
	}
	return map[string]string{
		"spiffe_id": "trust_domain, namespace, service_account", "kind": "its name",
		"key_type": "key_type", "ttl": "ttl", "provider": "default_provider", "providers": "provider",
	}[setting]
}

// cutLast splits off the last part of a path.
func cutLast(path string) (before, last string) {
	i := strings.LastIndex(path, ".")
	return path[:max(i, 0)], path[i+1:]
}
