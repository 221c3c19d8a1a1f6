package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/filesecret"
)

// Source says what answers a name, and by which rule: exactly one of Providers, Files
// and Socket.
type Source struct {
	Name string `json:"name"` // with <chain>, <key> and <ca> for what a client fills in
	Kind string `json:"kind"`
	// Providers may sign it, in order, or its roots are theirs.
	Providers []string `json:"providers,omitempty"`
	// Files are read, or lie in these folders.
	Files []string `json:"files,omitempty"`
	// Socket is where another program serves it.
	Socket string `json:"socket,omitempty"`
	Rule   string `json:"because"` // a sentence
}

// Place is what answers the name, in a few words.
func (s Source) Place() string {
	switch {
	case s.Socket != "":
		return "socket " + s.Socket
	case len(s.Files) > 0:
		return "files " + strings.Join(s.Files, ", ")
	case len(s.Providers) == 0 || s.Providers[0] == "":
		return "-" // which the error says
	}
	return strings.Join(s.Providers, ", ")
}

// Sources returns what answers each name, "default" and "ROOTCA" first, of a complete
// configuration.
func (c *Config) Sources() []Source {
	var all []Source
	for _, name := range []string{DefaultSecret, RootCA} {
		if c.elsewhere(name) {
			all = append(all, Source{Name: name, Kind: usualKind(name), Socket: c.Socket.Path, Rule: c.foreignRule()})
		}
	}
	for _, s := range c.Secrets {
		all = append(all, Source{Name: s.Name, Kind: s.Kind, Providers: s.Providers, Rule: c.whySigned(s)})
	}
	for _, s := range c.Files.Secrets {
		all = append(all, s.source())
	}
	slices.SortStableFunc(all, func(a, b Source) int { return cmp.Compare(rank(a.Name), rank(b.Name)) })
	return append(all, c.dynamic()...)
}

func rank(name string) int {
	if i := slices.Index([]string{DefaultSecret, RootCA}, name); i >= 0 {
		return i
	}
	return 2
}

// whySigned says why these providers are asked.
func (c *Config) whySigned(s Secret) string {
	path := "secrets." + s.Name
	for _, setting := range []string{path + ".provider", path + ".providers"} {
		if c.origins[setting] != "" || c.written[setting] {
			return setting + " names it"
		}
	}
	switch s.Name {
	case DefaultSecret:
		return c.choice.Rule
	case RootCA:
		if !c.answered(DefaultSecret) {
			return "it signs " + DefaultSecret
		}
	}
	if len(c.Providers) == 1 {
		return "it is the only provider"
	}
	return cmp.Or(c.origins["default_provider"], "default_provider") + " names it"
}

func (s FileSecret) source() Source {
	from := Source{Name: s.Name, Kind: KeyPair, Files: []string{s.Chain, s.Key}, Rule: cmp.Or(s.rule, "files.secrets names them")}
	if s.Roots != "" {
		from.Kind, from.Files = TrustBundle, []string{s.Roots}
	}
	return from
}

// dynamic are the names that carry their files.
func (c *Config) dynamic() []Source {
	if len(c.Files.Folders) == 0 {
		return nil
	}
	const rule = "the name says which file, and files.folders allows these folders"
	return []Source{
		{Name: "file-cert:<chain>~<key>", Kind: KeyPair, Files: c.Files.Folders, Rule: rule},
		{Name: "file-root:<ca>", Kind: TrustBundle, Files: c.Files.Folders, Rule: rule},
		{Name: "file-root:" + filesecret.System, Kind: TrustBundle, Files: []string{filesecret.System}, Rule: "the name says so, and files.folders is not empty"},
	}
}
