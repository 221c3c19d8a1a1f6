package istiocompat

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/text"
)

const (
	configVariable = "PROXY_CONFIG"
	// maxConfig limits the size of PROXY_CONFIG.
	maxConfig = 64 << 10

	metadataField   = "proxyMetadata"
	discoveryField  = "discoveryAddress"
	adminField      = "proxyAdminPort"
	statusField     = "statusPort"
	drainField      = "terminationDrainDuration"
	hotRestartField = "drainDuration"
)

// proxyConfig is PROXY_CONFIG, and what became of it.
type proxyConfig struct {
	fields   map[string]any    // by the names that JSON has
	used     map[string]bool   // fields
	rejected map[string]bool   // fields
	metadata map[string]string // variables, and where they are in PROXY_CONFIG
	ignored  []string          // entries of proxyMetadata without effect
}

func fieldPath(name string) string { return configVariable + "." + name }

// proxyConfig reads PROXY_CONFIG. Entries of its proxyMetadata become variables, unless the
// environment has them, as in a pod that Istio's injector made.
func (t *translator) proxyConfig() {
	fields, err := parseProxyConfig(t.set[configVariable])
	t.check(err)
	t.config = proxyConfig{fields: fields, used: map[string]bool{metadataField: true}, rejected: map[string]bool{}, metadata: map[string]string{}}
	entries, ok := fields[metadataField].(map[string]any)
	if !ok && fields[metadataField] != nil {
		t.wrong = append(t.wrong, errors.New(fieldPath(metadataField)+" holds no variables: write NAME: \"value\""))
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if t.set[name] == "" {
			t.metadata(name, entries[name])
		}
	}
}

// metadata reads one entry. Headers may be credentials, which are nothing but variables.
func (t *translator) metadata(name string, value any) {
	at := fieldPath(metadataField + "." + name)
	_, known := fateOf(name)
	written, isText := scalar(value)
	switch {
	case !isText:
		t.wrong = append(t.wrong, fmt.Errorf("%s is not text: write it in quotes", text.Clean(at)))
	case written == "":
	case !known, name == configVariable, strings.HasPrefix(name, headerPrefix):
		t.config.ignored = append(t.config.ignored, text.Clean(at)+" ("+string(NotThere)+")")
	default:
		t.set[name], t.config.metadata[name] = written, at
	}
}

// parseProxyConfig reads YAML or JSON. As in protobuf's JSON, names may have underscores.
func parseProxyConfig(content string) (map[string]any, error) {
	if len(content) > maxConfig {
		return nil, fmt.Errorf("%s has %d bytes: write %d at most", configVariable, len(content), maxConfig)
	}
	var tree any
	asJSON, err := yaml.YAMLToJSONStrict([]byte(content))
	if err == nil {
		err = json.Unmarshal(asJSON, &tree)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not valid YAML: %s", configVariable, text.Clean(strings.Join(strings.Fields(err.Error()), " ")))
	}
	written, ok := tree.(map[string]any)
	if !ok && tree != nil {
		return nil, fmt.Errorf("%s holds no fields: write {\"discoveryAddress\": \"istiod.istio-system.svc:15012\"}", configVariable)
	}
	all := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		field := camelCase(name)
		if _, twice := all[field]; twice {
			return nil, fmt.Errorf("%s has %s twice: use each field once", configVariable, text.Clean(field))
		}
		all[field] = written[name]
	}
	return all, nil
}

// camelCase is the name that JSON has for a field.
func camelCase(name string) string {
	words := strings.Split(name, "_")
	for i, word := range words[1:] {
		if word != "" {
			words[i+1] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

// scalar is a value as text.
func scalar(value any) (written string, ok bool) {
	switch v := value.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}

// field returns a field that is about to have an effect; "" if it is not set.
func (t *translator) field(name string) string {
	written, ok := scalar(t.config.fields[name])
	if !ok {
		t.rejectField(name, "write text or a number")
	}
	t.config.used[name] = true
	return written
}

func (t *translator) rejectField(name, fix string) {
	if t.config.rejected[name] {
		return
	}
	written, _ := scalar(t.config.fields[name])
	t.wrong = append(t.wrong, fmt.Errorf("%s is %.256q: %s", fieldPath(name), written, fix))
	t.config.rejected[name] = true
}

// portField returns a port, or the usual one.
func (t *translator) portField(name, usual string) string {
	port := t.field(name)
	if port == "" {
		return usual
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		t.rejectField(name, "write a port")
	}
	return port
}

// durationField returns a duration, 0 if it is not set.
func (t *translator) durationField(name string) time.Duration {
	written := t.field(name)
	if written == "" {
		return 0
	}
	d, err := time.ParseDuration(written)
	if err != nil || d < 0 {
		t.rejectField(name, "write a duration such as 5s")
	}
	return max(d, 0)
}

// hotRestart reads how long Envoy drains when its successor starts.
func (t *translator) hotRestart() {
	if !t.given.HotRestart {
		return
	}
	if d := t.durationField(hotRestartField); d > 0 {
		t.add("proxy.reload.drain_time", d.String(), fieldPath(hotRestartField))
	}
}

// ignoredFields are those without effect that ask for something.
func (c proxyConfig) ignoredFields() []string {
	ignored := slices.Clone(c.ignored)
	for name, value := range c.fields {
		v, fate := Variable{}, "unknown"
		if i := slices.IndexFunc(fields, func(f Variable) bool { return f.Name == name }); i >= 0 {
			v, fate = fields[i], string(fields[i].Fate)
		}
		if v.Fate == Taken {
			fate = "no effect here"
		}
		written, _ := scalar(value)
		if !c.used[name] && !isZero(value) && !v.usual(written) {
			ignored = append(ignored, text.Clean(fieldPath(name))+" ("+fate+")")
		}
	}
	return ignored
}

// isZero reports whether a value is the one that an unset field has.
func isZero(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return value == nil || value == "" || value == false || value == 0.0
}
