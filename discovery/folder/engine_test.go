package folder

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/countersign-dev/countersign/discovery"
	ndsv1 "github.com/countersign-dev/countersign/proto/istio/networking/nds/v1"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// pipe is a stream in memory.
type pipe[Q, R any] struct {
	t         *testing.T
	ctx       context.Context
	requests  chan Q
	responses chan R
}

func (p *pipe[Q, R]) Context() context.Context { return p.ctx }

func (p *pipe[Q, R]) Recv() (q Q, err error) {
	select {
	case q := <-p.requests:
		return q, nil
	case <-p.ctx.Done():
		return q, io.EOF
	}
}

func (p *pipe[Q, R]) Send(r R) error {
	p.responses <- r
	return nil
}

func (p *pipe[Q, R]) next() R {
	p.t.Helper()
	select {
	case r := <-p.responses:
		return r
	case <-time.After(patience):
		p.t.Fatal("nothing is sent")
	}
	panic("unreachable")
}

// none demands that nothing waits; what is to be silent had as long as what came.
func (p *pipe[Q, R]) none() {
	p.t.Helper()
	select {
	case r := <-p.responses:
		p.t.Fatalf("%v is sent", r)
	default:
	}
}

func newPipe[Q, R any](t *testing.T, serve func(*pipe[Q, R]) error) *pipe[Q, R] {
	ctx, stop := context.WithCancel(t.Context())
	p := &pipe[Q, R]{t, ctx, make(chan Q, 20), make(chan R, 20)}
	done := make(chan error, 1)
	go func() { done <- serve(p) }()
	t.Cleanup(func() { stop(); <-done })
	return p
}

func engine(t *testing.T, f *Folder, c *discovery.Caller) *xds.Engine[*discovery.Caller] {
	t.Helper()
	e, err := xds.New(xds.Config[*discovery.Caller]{
		Types: f.Types(),
		Admit: func(context.Context) (*discovery.Caller, error) { return c, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// ads is a stream of the state of the world.
type ads struct {
	*pipe[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse]
}

func dial(t *testing.T, f *Folder, c *discovery.Caller) ads {
	e := engine(t, f, c)
	return ads{newPipe(t, func(p *pipe[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse]) error {
		return e.Stream(p, "")
	})}
}

func (a ads) ask(url string, names ...string) {
	a.requests <- &discoveryv3.DiscoveryRequest{TypeUrl: url, ResourceNames: names, Node: &corev3.Node{Id: "envoy"}}
}

// gets demands an answer of that type, acknowledges it, and returns what it holds.
func (a ads) gets(url string, resources int, names ...string) *discoveryv3.DiscoveryResponse {
	a.t.Helper()
	r := a.next()
	if r.TypeUrl != url || len(r.Resources) != resources {
		a.t.Fatalf("got %d of %s, want %d of %s", len(r.Resources), r.TypeUrl, resources, url)
	}
	a.requests <- &discoveryv3.DiscoveryRequest{TypeUrl: url, ResourceNames: names, VersionInfo: r.VersionInfo, ResponseNonce: r.Nonce}
	return r
}

const edsCluster = cluster + `type: EDS
eds_cluster_config: {eds_config: {ads: {}}}
`

func TestClientGetsWholeFolder(t *testing.T) {
	d := newDir(t)
	d.write("a.yaml", edsCluster+"---\n"+second+"---\n"+endpoints("10.0.0.1")+"---\n"+fmtListener()+
		"---\n\"@type\": "+RouteURL+"\nname: routes\n---\nhosts: {db.example.org: {ips: [10.0.0.9]}}")
	a := dial(t, d.run(), gateway(t))
	a.ask(ClusterURL)
	a.gets(ClusterURL, 2)
	a.ask(EndpointURL, "web")
	a.gets(EndpointURL, 1, "web")
	a.ask(ListenerURL)
	a.gets(ListenerURL, 1)
	a.ask(RouteURL, "routes")
	a.gets(RouteURL, 1, "routes")
	a.ask(NameTableURL)
	table := &ndsv1.NameTable{}
	if err := a.gets(NameTableURL, 1).Resources[0].UnmarshalTo(table); err != nil || !slices.Equal(table.Table["db.example.org"].GetIps(), []string{"10.0.0.9"}) {
		t.Errorf("got %v, %v", table, err)
	}
	d.write("a.yaml", "hosts: {db.example.org: {ips: [10.0.0.8]}}\n---\n"+edsCluster)
	a.gets(ClusterURL, 1) // complete: second is deleted by that
	a.gets(ListenerURL, 0)
	a.gets(NameTableURL, 1)
	a.none()
}

// Envoy waits for the endpoints of a cluster that has changed, even if they are the same.
func TestChangedClusterBringsItsEndpoints(t *testing.T) {
	d := newDir(t)
	d.write("c.yaml", edsCluster)
	d.write("e.yaml", endpoints("10.0.0.1"))
	a := dial(t, d.run(), gateway(t))
	a.ask(ClusterURL)
	a.gets(ClusterURL, 1)
	a.ask(EndpointURL, "web")
	a.gets(EndpointURL, 1, "web")
	d.write("c.yaml", strings.Replace(edsCluster, "1s", "2s", 1))
	a.gets(ClusterURL, 1)
	a.gets(EndpointURL, 1, "web")
	a.none()
}

func TestChangedEndpointsSendOnlyThatCluster(t *testing.T) {
	d := newDir(t)
	other := strings.Replace(endpoints("10.0.1.1"), "web", "other", 1)
	d.write("c.yaml", edsCluster)
	d.write("e.yaml", endpoints("10.0.0.1")+"---\n"+other)
	f := d.run()
	a, unconcerned := dial(t, f, gateway(t)), dial(t, f, gateway(t))
	a.ask(ClusterURL)
	a.gets(ClusterURL, 1)
	a.ask(EndpointURL, "web", "other")
	a.gets(EndpointURL, 2, "web", "other")
	unconcerned.ask(EndpointURL, "other")
	unconcerned.gets(EndpointURL, 1, "other")
	d.write("e.yaml", endpoints("10.0.0.2")+"---\n"+other)
	a.gets(EndpointURL, 1, "web", "other")
	d.write("e.yaml", endpoints("10.0.0.2")+"---\n"+strings.Replace(other, "10.0.1.1", "10.0.1.2", 1))
	a.gets(EndpointURL, 1, "web", "other")
	unconcerned.gets(EndpointURL, 1, "other")
	a.none()
	unconcerned.none()
}

func TestDeltaReportsRemovals(t *testing.T) {
	d := newDir(t)
	d.write("a.yaml", cluster)
	d.write("b.yaml", second)
	e := engine(t, d.run(), gateway(t))
	p := newPipe(t, func(p *pipe[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse]) error {
		return e.StreamDelta(p, "")
	})
	for _, url := range []string{ClusterURL, NameTableURL} {
		p.requests <- &discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, Node: &corev3.Node{Id: "envoy"}}
		want := map[string]int{ClusterURL: 2, NameTableURL: 1}[url]
		if r := p.next(); len(r.Resources) != want {
			t.Fatalf("%s: %v", url, r)
		}
	}
	d.remove("b.yaml")
	if r := p.next(); !slices.Equal(r.RemovedResources, []string{"second"}) || len(r.Resources) != 0 {
		t.Errorf("%v", r)
	}
	for _, name := range []string{"second", "third"} { // one that is back, and one that never was there
		d.write(name+".yaml", strings.Replace(second, "second", name, 1))
		if r := p.next(); len(r.Resources) != 1 || r.Resources[0].Name != name {
			t.Errorf("%v", r)
		}
	}
}

func TestCallersOfOneClassShareView(t *testing.T) {
	d := newDir(t)
	d.write("a.yaml", "for: {namespaces: [ingress]}\n---\n"+cluster+"---\nhosts: {db.example.org: {ips: [10.0.0.9]}}")
	f := d.open()
	g := f.now.Load()
	for range 1000 {
		_ = g.view(gateway(t)).table()
	}
	if len(g.views) != 1 {
		t.Errorf("%d views are kept for one class", len(g.views))
	}
	for _, k := range []key{{ClusterURL, "web"}, {NameTableURL, tableName}} {
		if a, b := g.resource(gateway(t), k), g.resource(gateway(t), k); a != b || a == nil {
			t.Errorf("%s is made for each caller", k)
		}
	}
}

func TestClientClassesAreBounded(t *testing.T) {
	d := newDir(t)
	for i := range 12 {
		name := string(rune('a' + i))
		d.write(name+".yaml", "for: {anyone: true, labels: {"+name+": x}}\n---\nhosts: {"+name+".example.org: {ips: [10.0.0.9]}}")
	}
	g := d.open().now.Load()
	for i := range 1 << 12 {
		c := gateway(t)
		c.Node.Labels = map[string]string{}
		for bit := range 12 {
			if i>>bit&1 == 1 {
				c.Node.Labels[string(rune('a'+bit))] = "x"
			}
		}
		g.view(c)
	}
	if len(g.views) > maxViews {
		t.Errorf("%d classes are kept", len(g.views))
	}
}
