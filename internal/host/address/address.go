// Package address finds which setting of a provider is the address of its CA. [Of] reads it from
// the JSON Schema of the settings; [Settings.Apply] puts an address, such as that of CA_ADDR,
// into the provider's settings. So no host has to know a setting by its name.
//
// The plugin host calls it with the schema of the running provider, the configuration with what
// the lock file recorded of it. Its functions are pure.
package address

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Annotation is the keyword of a setting's JSON Schema that marks it as the address of the CA.
// Its value is the [Form] of the address.
const Annotation = "x-countersign-address"

// Form is how an address is written. A form that this version does not know counts as [Text].
type Form string

// The forms, from the most to the least specific.
const (
	HostPort Form = "host:port" // such as ca.example.com:8443
	Path     Form = "path"      // an absolute path
	URL      Form = "url"       // without a scheme, https:// is put before it
	Text     Form = "text"      // anything that the setting's pattern allows
)

// Forms are all of them, in the order in which they are tried.
var Forms = []Form{HostPort, Path, URL, Text}

// The limits of a schema, which is foreign, and of a lock file.
const (
	Max        = 16
	maxPattern = 1 << 10
)

// Setting is a setting that holds an address.
type Setting struct {
	Name string
	Form Form
	// Pattern is an unanchored regular expression that its value matches. Default: any.
	Pattern string
}

// Settings are those of a provider, in the order in which an address is tried; most have one. Nil
// means unknown, an empty list that the provider takes no address.
type Settings []Setting

// Usual are the settings that count if nothing is known about a provider.
var Usual = Settings{{Name: "url", Form: URL}, {Name: "address", Form: Text}}

type property struct {
	Type    any    `json:"type"`
	Format  string `json:"format"`
	Pattern string `json:"pattern"`
	Mark    any    `json:"x-countersign-address"`
	// Either of these makes it a secret, which is no address: an address is shown and recorded.
	WriteOnly any `json:"writeOnly"`
	Secret    any `json:"x-secret"`
}

func (p property) isSecret() bool { return p.WriteOnly == true || p.Secret == true }

func (p property) isText() bool {
	list, many := p.Type.([]any)
	return p.Type == "string" || many && slices.Contains(list, any("string"))
}

// Of returns the settings that a JSON Schema marks at its top level, without secret ones; if it marks
// none, "url" or "address" counts.
// The result is never nil without an error.
func Of(schema string) (Settings, error) {
	var read struct {
		Properties map[string]property `json:"properties"`
	}
	if schema == "" {
		return Settings{}, nil
	}
	if err := json.Unmarshal([]byte(schema), &read); err != nil {
		return nil, errors.New("the schema of the settings is malformed")
	}
	found := Settings{}
	for _, name := range slices.Sorted(maps.Keys(read.Properties)) {
		p := read.Properties[name]
		if form, ok := p.Mark.(string); ok && p.isText() && !p.isSecret() && len(found) < Max {
			found = append(found, p.setting(name, Form(form)))
		}
	}
	if len(found) == 0 {
		return usual(read.Properties), nil
	}
	slices.SortStableFunc(found, func(a, b Setting) int { return a.Form.rank() - b.Form.rank() })
	return found, nil
}

func usual(properties map[string]property) Settings {
	for _, one := range Usual {
		if p, ok := properties[one.Name]; ok && p.isText() && !p.isSecret() {
			if p.Format == "uri" {
				one.Form = URL
			}
			return Settings{p.setting(one.Name, one.Form)}
		}
	}
	return Settings{}
}

func (p property) setting(name string, form Form) Setting {
	if !slices.Contains(Forms, form) {
		form = Text
	}
	if _, err := regexp.Compile(p.Pattern); err != nil || len(p.Pattern) > maxPattern {
		p.Pattern = "" // the provider checks it
	}
	return Setting{name, form, p.Pattern}
}

func (f Form) rank() int { return slices.Index(Forms, f) }

// Check returns why a schema's marks are invalid, for the author of a provider.
func Check(schema string) error {
	var read struct {
		Properties map[string]property `json:"properties"`
	}
	var whole any
	if err := errors.Join(json.Unmarshal([]byte(schema), &read), json.Unmarshal([]byte(schema), &whole)); err != nil {
		return err
	}
	counted := 0
	for _, name := range slices.Sorted(maps.Keys(read.Properties)) {
		p := read.Properties[name]
		switch form, isText := p.Mark.(string); {
		case p.Mark == nil:
		case !isText || !slices.Contains(Forms, Form(form)):
			return fmt.Errorf("%s has %s %v: write one of %q", name, Annotation, p.Mark, Forms)
		case !p.isText():
			return fmt.Errorf("%s has %s, and is not a string", name, Annotation)
		case p.isSecret():
			return fmt.Errorf("%s has %s, and is secret: an address is shown", name, Annotation)
		}
		if p.Mark != nil {
			counted++
		}
	}
	if marks(whole) > counted {
		return fmt.Errorf("%s has no effect below the top level or in a definition: put it on a property of the settings", Annotation)
	}
	return nil
}

// marks counts the marks of a schema, wherever they are.
func marks(schema any) (n int) {
	switch schema := schema.(type) {
	case map[string]any:
		for name, below := range schema {
			if _, isText := below.(string); name == Annotation && isText {
				n++
			}
			n += marks(below)
		}
	case []any:
		for _, below := range schema {
			n += marks(below)
		}
	}
	return n
}

// Choose returns the setting that an address is for, and its value there. The error lists what the
// provider takes, and does not repeat the address: it may hold a password.
func (s Settings) Choose(address string) (name, value string, err error) {
	if len(s) == 0 {
		return "", "", errors.New("the provider takes no address: its schema marks no setting as one; write its settings instead")
	}
	var allowed []string
	for _, one := range s {
		if value, ok := one.value(address); ok {
			return one.Name, value, nil
		}
		allowed = append(allowed, one.allowed())
	}
	return "", "", errors.New("write " + strings.Join(allowed, ", or "))
}

// Apply returns the settings with the address among them, in place of the one that they have.
// Settings are not changed. An empty address changes nothing.
func (s Settings) Apply(settings map[string]any, address string) (map[string]any, error) {
	if address == "" {
		return settings, nil
	}
	name, value, err := s.Choose(address)
	if err != nil {
		return nil, err
	}
	out := maps.Clone(settings)
	if out == nil {
		out = map[string]any{}
	}
	out[name] = value
	return out, nil
}

// In returns the address that settings have; empty for none.
func (s Settings) In(settings map[string]any) string {
	for _, one := range s {
		if address, _ := settings[one.Name].(string); address != "" {
			return address
		}
	}
	return ""
}

// value returns what the setting becomes.
func (s Setting) value(address string) (value string, ok bool) {
	value = address
	switch s.Form {
	case HostPort:
		ok = IsHostPort(address)
	case Path:
		ok = path.IsAbs(address)
	case URL:
		if !strings.Contains(address, "://") {
			value = "https://" + address
		}
		at, err := url.Parse(value)
		ok = err == nil && at.Host != ""
	default:
		ok = address != ""
	}
	matches, err := regexp.MatchString(s.Pattern, value)
	return value, ok && !hasControl(value) && (matches || err != nil)
}

func (s Setting) allowed() string {
	text := map[Form]string{
		HostPort: "host:port", Path: "an absolute path", URL: "a URL, or HOST[:PORT][/PATH] for https",
	}[s.Form]
	switch {
	case text == "" && s.Pattern == "":
		return "text without control characters, for the setting " + s.Name
	case text == "":
		text = "text that matches " + s.Pattern
	case s.Form == URL && s.Pattern != "":
		text += ", that matches " + s.Pattern
	}
	return text + ", for the setting " + s.Name
}

// IsHostPort reports whether text is a host with a port.
func IsHostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	number, wrong := strconv.ParseUint(port, 10, 16)
	return err == nil && wrong == nil && number > 0 && host != "" && !strings.ContainsAny(host, `/@?#\ `) && !hasControl(host)
}

func hasControl(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }
