package folder

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/internal/test/polling"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long an event may take on a machine with much to do.
const patience = 2 * time.Minute

// caller is one with that SPIFFE ID, in the cluster east.
func caller(t *testing.T, spiffeID string) *discovery.Caller {
	t.Helper()
	id, err := authn.OfSPIFFEID(spiffeID)
	if err != nil {
		t.Fatal(err)
	}
	return &discovery.Caller{Identity: id, Cluster: "east", Node: discovery.Node{ID: "node-1"}}
}

func gateway(t *testing.T) *discovery.Caller {
	return caller(t, "spiffe://example.org/ns/ingress/sa/gateway")
}

// dir is a folder of a test.
type dir struct {
	t    *testing.T
	path string
}

func newDir(t *testing.T) dir { return dir{t, t.TempDir()} }

// write puts a file there at once, as a rename does.
func (d dir) write(name, content string) {
	d.t.Helper()
	temporary := filepath.Join(d.path, "."+name+".tmp")
	d.must(os.WriteFile(temporary, []byte(content), 0o600))
	d.must(os.Rename(temporary, filepath.Join(d.path, name)))
}

func (d dir) remove(name string) {
	d.t.Helper()
	d.must(os.Remove(filepath.Join(d.path, name)))
}

func (d dir) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// open reads the folder once.
func (d dir) open() *Folder {
	d.t.Helper()
	f, err := New(Config{Path: d.path, Settle: 20 * time.Millisecond, Poll: time.Hour})
	d.must(err)
	return f
}

// run follows the folder until the test ends.
func (d dir) run() *Folder {
	d.t.Helper()
	f := d.open()
	ctx, stop := context.WithCancel(d.t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	d.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			d.t.Error(err)
		}
	})
	return f
}

func (f *Folder) source(url string) xds.Source[*discovery.Caller] {
	for _, t := range f.Types() {
		if t.URL == url {
			return t.Source
		}
	}
	return nil
}

// version returns the version of what the caller has, empty where it has nothing.
func (f *Folder) version(c *discovery.Caller, url, name string) string {
	r, err := f.source(url).Peek(c, name)
	if err != nil {
		return ""
	}
	return r.Version
}

// eventually waits for what is true after events of files.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	polling.Until(t, patience, what, is)
}

const cluster = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: web
connect_timeout: 1s
`

// endpoints of web, at that address.
func endpoints(address string) string {
	return `"@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
cluster_name: web
endpoints:
- lb_endpoints:
  - endpoint: {address: {socket_address: {address: ` + address + `, port_value: 80}}}
`
}
