package setup

import (
	"fmt"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// template is a provider's entry, and the settings that the command line must have.
type template struct {
	text     string
	required []string // NAME=EXAMPLE
}

var templates = map[string]template{
	"file": {text: `# A CA of the agent's own, to try things with. No other machine trusts it.
providers:
- name: file
  settings:
    dir: /var/lib/countersign/ca
    self_signed: true
`},
	"vault": {
		text: `# "countersign provider docs vault" lists the settings.
providers:
- name: vault
  settings: {}
`,
		required: []string{"url=https://vault.example.org:8200", "role=web", "login.method=approle"},
	},
	"acme": {
		text: `# Let's Encrypt. Try https://acme-staging-v02.api.letsencrypt.org/directory first: its limits are generous,
# and no browser trusts it. The name must resolve to this machine, whose port 80 must reach the agent.
providers:
- name: acme
  settings:
    url: https://acme-v02.api.letsencrypt.org/directory
    state_dir: /var/lib/countersign/acme
`,
		required: []string{"accept_terms=true"},
	},
}

// challenges is where the CA's requests are answered.
const challenges = "127.0.0.1:8402"

// entry returns the provider's entry, with the settings of the command line.
func (r *request) entry() (string, error) {
	var doc yaml.Node
	from := templates[r.provider]
	if err := yaml.Unmarshal([]byte(from.text), &doc); err != nil {
		return "", err
	}
	settings := member(member(doc.Content[0], "providers").Content[0], "settings")
	settings.Style = 0
	for _, given := range r.given() {
		if err := set(settings, given); err != nil {
			return "", err
		}
	}
	if err := r.complete(settings, from.required); err != nil {
		return "", err
	}
	r.forward(settings)
	var text strings.Builder
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(&doc); err != nil {
		return "", err
	}
	return text.String(), nil
}

// given returns the settings of the command line.
func (r *request) given() []string {
	if r.acceptTerms && r.provider == "acme" {
		return append([]string{"accept_terms=true"}, r.settings...)
	}
	return r.settings
}

// complete fails if a setting is missing.
func (r *request) complete(settings *yaml.Node, required []string) error {
	var missing []string
	for _, one := range required {
		name, _, _ := strings.Cut(one, "=")
		if at(settings, strings.Split(name, ".")) == nil {
			missing = append(missing, "--set "+one)
		}
	}
	switch {
	case len(missing) == 0:
		return nil
	case r.provider == "acme":
		return fmt.Errorf("the CA at %s issues to those who accept its terms of service: read them, and pass --accept-terms", member(settings, "url").Value)
	}
	return fmt.Errorf("%s needs more settings: pass %s, with the values of your own; \"countersign provider docs %s\" lists them all", r.provider, strings.Join(missing, " "), r.provider)
}

// forward has the server on port 80 forward the CA's requests, unless the names are proved otherwise.
func (r *request) forward(settings *yaml.Node) {
	if r.provider != "acme" || member(settings, "challenge") != nil || member(settings, "webroot") != nil || member(settings, "listen") != nil {
		return
	}
	r.forwards = true
	key := &yaml.Node{Kind: yaml.ScalarNode, Value: "listen", HeadComment: "# The server on port 80 forwards /.well-known/acme-challenge/ to it."}
	settings.Content = append(settings.Content, key, &yaml.Node{Kind: yaml.ScalarNode, Value: challenges})
}

// member returns the value of a key, nil if there is none.
func member(of *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(of.Content) && of.Kind == yaml.MappingNode; i += 2 {
		if of.Content[i].Value == key {
			return of.Content[i+1]
		}
	}
	return nil
}

func at(of *yaml.Node, path []string) *yaml.Node {
	for _, key := range path {
		if of = member(of, key); of == nil {
			return nil
		}
	}
	return of
}

// set sets NAME=VALUE, by the rules of a configuration file: true is a truth value, "3" text.
func set(settings *yaml.Node, given string) error {
	name, text, ok := strings.Cut(given, "=")
	if !ok || name == "" {
		return fmt.Errorf("--set is %.256q: write NAME=VALUE, such as url=https://vault.example.org:8200", given)
	}
	value, err := valueOf(name, text)
	if err != nil {
		return err
	}
	path := strings.Split(name, ".")
	for _, key := range path[:len(path)-1] {
		settings = ensure(settings, key, &yaml.Node{Kind: yaml.MappingNode})
		if settings.Kind != yaml.MappingNode {
			return fmt.Errorf("--set %.64q: %.64q is a value, and has no settings of its own", name, key)
		}
	}
	*ensure(settings, path[len(path)-1], value) = *value
	return nil
}

// ensure returns the value of a key, which is added if there is none.
func ensure(of *yaml.Node, key string, value *yaml.Node) *yaml.Node {
	if now := member(of, key); now != nil {
		return now
	}
	of.Content = append(of.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	return value
}

// valueOf reads a value. A file's path becomes absolute, as the agent's working directory is another.
func valueOf(name, text string) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, fmt.Errorf("--set %.64q: invalid value: write it as in a YAML file", name)
	}
	if len(doc.Content) == 0 {
		return nil, fmt.Errorf("--set %.64q has no value", name)
	}
	value := doc.Content[0]
	if strings.HasSuffix(name, "_file") && value.Kind == yaml.ScalarNode {
		path, err := filepath.Abs(value.Value)
		if err != nil {
			return nil, err
		}
		value.SetString(path)
	}
	return value, nil
}
