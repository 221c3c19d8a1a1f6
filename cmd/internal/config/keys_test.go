package config_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// mostKeys bounds the settings of the three programs. Lower it when some go; to add one, remove
// another. A section of a new feature may raise it: 430, 5 of publish_bundle, one for labels of trust
// bundles, and 15 of certificates on demand (match, match_file and on_demand of secrets): any client
// may ask for any name there, so each bound of what that costs is the operator's, as is which other
// certificate stands in for an order. 10 are of broker, and of gid, executable and cgroup in
// workloads.peers: who may act for which workload is the operator's, too. 9 are of store: the folder
// of several machines and their key, or the namespace in Kubernetes and how an agent outside of the
// cluster gets there. 5 are of publish_bundle in countersign-ra: its trust domain, whose roots, and the
// certificate; 2 in countersign-discovery: which trust domain. One names the experiments,
// and one the trust domains that a signer's pods are federated with (bundle_endpoints).
const mostKeys = 479

// Each key counts, a section's name included. The section providers is the same in all three
// programs, so it counts once, as does what each publish_bundle has (config.Published), and an entry of
// bundle_endpoints (config.Followed).
func TestSettingsStayFew(t *testing.T) {
	n := 0
	for i, s := range schemas(t) {
		if i > 0 {
			delete(s.Properties, "providers")
			if publish, ok := s.Properties["publish_bundle"]; ok {
				for _, shared := range []string{"address", "profile", "url"} {
					delete(publish.Properties, shared)
				}
			}
			if signers, ok := s.Properties["signers"]; ok {
				signers.Items.Properties["trust_bundle"].Properties["bundle_endpoints"].Items = &jsonschema.Schema{}
			}
		}
		n += keys(s)
	}
	if n != mostKeys {
		t.Errorf("there are %d settings, and mostKeys is %d: lower it if there are fewer, else remove settings", n, mostKeys)
	}
}

// keys counts the settings below s.
func keys(s *jsonschema.Schema) (n int) {
	if s.Items != nil {
		return keys(s.Items)
	}
	for _, below := range s.Properties {
		n += 1 + keys(below)
	}
	return n
}

// A line of the list is wrong if its setting exists in each program that has the section around it.
func TestRemovedSettingsAreUnknown(t *testing.T) {
	all := schemas(t)
	for path, advice := range config.Removed {
		gone := false
		for _, s := range all {
			gone = gone || lacks(s, strings.Split(strings.ReplaceAll(path, "[]", ""), "."))
		}
		if !gone || advice == "" {
			t.Errorf("%s is a setting, or never was one (%q)", path, advice)
		}
	}
}

// lacks reports whether s has the section of a path, and not its last key.
func lacks(s *jsonschema.Schema, path []string) bool {
	for s.Items != nil {
		s = s.Items
	}
	below, ok := s.Properties[path[0]]
	if len(path) == 1 || !ok {
		return len(path) == 1 && !ok
	}
	return lacks(below, path[1:])
}

// schemas returns those of the three programs.
func schemas(t *testing.T) (all []*jsonschema.Schema) {
	t.Helper()
	for _, name := range []string{"cmd/internal/config", "cmd/countersign-discovery/internal/config", "cmd/countersign-ra/internal/config"} {
		text, err := os.ReadFile(programs.File(t, name+"/schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		s := &jsonschema.Schema{}
		if err := json.Unmarshal(text, s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}
