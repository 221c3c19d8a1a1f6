package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/filesecret"
)

// Source is where a name is served from, and why. Exactly one of Providers, Files and Socket
// is set.
type Source struct {
	Name string `json:"name"` // <chain>, <key> and <ca> stand for a client's paths
	Kind string `json:"kind"`
	// Providers sign it, in order, or supply its roots; a bundle endpoint is there by its URL.
	Providers []string `json:"providers,omitempty"`
	// Files to read, or the folders they are in.
	Files []string `json:"files,omitempty"`
	// Socket of another program that serves it.
	Socket string `json:"socket,omitempty"`
	Rule   string `json:"because"` // a clause
}

// Place describes the source in a few words.
func (s Source) Place() string {
	switch {
	case s.Socket != "":
		return "socket " + s.Socket
	case len(s.Files) > 0:
		return "files " + strings.Join(s.Files, ", ")
	case len(s.Providers) == 0 || s.Providers[0] == "":
		return "-" // the error names it
	}
	return strings.Join(s.Providers, ", ")
}

// Sources returns the source of each name in a complete configuration, "default" and
// "ROOTCA" first.
func (c *Config) Sources() []Source {
	var all []Source
	for _, name := range []string{DefaultSecret, RootCA} {
		if c.elsewhere(name) {
			all = append(all, Source{Name: name, Kind: usualKind(name), Socket: c.Socket.Path, Rule: c.foreignRule()})
		}
	}
	for _, s := range c.Rules() {
		all = append(all, Source{Name: "any that matches " + cmp.Or(strings.Join(s.Match, ", "), s.MatchFile), Kind: s.Kind, Providers: s.Providers, Rule: c.whySigned(s)})
	}
	for _, s := range c.Named() {
		all = append(all, Source{Name: s.Name, Kind: s.Kind, Providers: s.Providers, Rule: c.whySigned(s)})
	}
	for _, s := range c.Files.Secrets {
		all = append(all, s.source())
	}
	for _, s := range c.Spire.Secrets {
		all = append(all, s.source(c.Spire.Socket))
	}
	for _, e := range c.BundleEndpoints {
		all = append(all, e.source())
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

// whySigned returns why these providers sign.
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
	from := Source{Name: s.Name, Kind: KeyPair, Files: slices.Compact([]string{s.Chain, s.Key}), Rule: cmp.Or(s.rule, "files.secrets names them")}
	if s.Roots != "" {
		from.Kind, from.Files = TrustBundle, []string{s.Roots}
	}
	return from
}

// dynamic returns the names that contain file paths.
func (c *Config) dynamic() []Source {
	if len(c.Files.Folders) == 0 {
		return nil
	}
	const rule = "the name contains the path, and files.folders allows these folders"
	return []Source{
		{Name: "file-cert:<chain>~<key>", Kind: KeyPair, Files: c.Files.Folders, Rule: rule},
		{Name: "file-root:<ca>", Kind: TrustBundle, Files: c.Files.Folders, Rule: rule},
		{Name: "file-root:" + filesecret.System, Kind: TrustBundle, Files: []string{filesecret.System}, Rule: "the name is built in, and files.folders is not empty"},
	}
}
