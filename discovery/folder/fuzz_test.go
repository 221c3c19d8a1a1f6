package folder

import (
	"testing"
	"time"
)

// A file never ends the program, never takes long, and what is served of it is
// something that a client can read.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		cluster, endpoints("10.0.0.1"), fmtListener(), bomb(), "a: &a [*a]",
		"for: {spiffe_ids: [\"spiffe://a/*\"], labels: {a: b}}\n---\nhosts: {a: {ips: [10.0.0.1]}}",
		"static_resources: {clusters: [{name: a, metadata: {filter_metadata: {a: {b: [.nan, 1e400, null]}}}}]}",
		`{"resources": [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		begun := time.Now()
		file, err := parse(content)
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("%d bytes took %s", len(content), took)
		}
		if err != nil {
			if err.Error() == "" || len(err.Error()) > 2048 {
				t.Errorf("no sentence: %q", err)
			}
			return
		}
		for k, r := range file.resources {
			m, err := r.Body.UnmarshalNew()
			if err != nil || k.name == "" || k.name == "*" {
				t.Fatalf("%s: %v", k, err)
			}
			if _, name := nameOf(m); name != k.name {
				t.Errorf("%s is named %q", k, name)
			}
		}
	})
}
