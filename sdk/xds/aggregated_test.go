package xds

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// aggregate is an engine of clusters, endpoints, listeners and routes, with a client on
// one stream of all.
type aggregate struct {
	*bench
	clusters, listeners *catalog
	endpoints, routes   *memorySource
}

func withAggregate(t *testing.T, story func(t *testing.T, a *aggregate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &aggregate{clusters: newCatalog(), endpoints: newMemorySource(), listeners: newCatalog(), routes: newMemorySource()}
		a.bench = newBench(t, Config[string]{Types: []Type[string]{
			{URL: "clusters", Source: a.clusters, Complete: true},
			{URL: "endpoints", Source: a.endpoints},
			{URL: "listeners", Source: a.listeners, Complete: true},
			{URL: "routes", Source: a.routes},
		}}, nil)
		story(t, a)
		a.engine.Close(nil)
	})
}

// cluster has a cluster whose endpoints have its name.
func (a *aggregate) cluster(name, version string) {
	a.clusters.put(&Resource{Name: name, Version: version, Refreshes: []Ref{{"endpoints", name}}})
}

func (c *client) subscribe(typ string, names ...string) {
	c.t.Helper()
	c.send(&discovery.DiscoveryRequest{TypeUrl: typ, ResourceNames: names})
}

func (c *client) getsOf(typ string, want ...string) {
	c.t.Helper()
	c.gets(want...)
	if got := c.last.GetTypeUrl(); got != typ {
		c.t.Fatalf("%v came as %s, want %s", want, got, typ)
	}
}

// started has a client that has all of cluster x and y.
func (a *aggregate) started() *client {
	a.cluster("x", "1")
	a.cluster("y", "1")
	a.clusters.list("x", "y")
	a.endpoints.set("x", "1")
	a.endpoints.set("y", "1")
	c := a.dialAs("", "")
	c.subscribe("clusters")
	c.getsOf("clusters", "x=1", "y=1")
	c.ack()
	c.subscribe("endpoints", "x", "y")
	c.getsOf("endpoints", "x=1", "y=1")
	c.ack("x", "y")
	return c
}

func TestPushOrderIsClustersEndpointsListenersRoutes(t *testing.T) {
	withAggregate(t, func(_ *testing.T, a *aggregate) {
		c := a.started()
		a.listeners.have("l")
		a.routes.set("r", "1")
		c.subscribe("listeners")
		c.getsOf("listeners", "l=1")
		c.ack()
		c.subscribe("routes", "r")
		c.getsOf("routes", "r=1")
		a.routes.set("busy", "1")
		c.ack("r", "busy") // is being sent, nobody reads
		a.routes.set("r", "2")
		a.listeners.set("l", "2")
		a.endpoints.set("y", "2")
		a.cluster("y", "2")
		c.getsOf("routes", "busy=1")
		c.getsOf("clusters", "x=1", "y=2")
		clusters := c.last
		c.getsOf("endpoints", "y=2")
		c.last = clusters
		c.ack()
		c.getsOf("listeners", "l=2")
		c.getsOf("routes", "r=2")
		c.silent()
	})
}

func TestClusterChangeResendsItsEndpoints(t *testing.T) {
	withAggregate(t, func(_ *testing.T, a *aggregate) {
		c := a.started()
		a.cluster("x", "2")
		c.getsOf("clusters", "x=2", "y=1")
		c.getsOf("endpoints", "x=1") // unchanged, and those of y are not sent
		c.ack("x", "y")
		c.silent()
	})
}

func TestClusterChangeResendsItsEndpointsInDelta(t *testing.T) {
	withAggregate(t, func(_ *testing.T, a *aggregate) {
		a.cluster("x", "1")
		a.clusters.list("x")
		a.endpoints.set("x", "1")
		c := &deltaClient{dialPeer(a.t, "", func(s Stream[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]) error {
			return a.engine.StreamDelta(s, "")
		}, deltaContents)}
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: "clusters"})
		c.gets("x=1")
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: "endpoints", ResourceNamesSubscribe: []string{"x"}})
		c.gets("x=1")
		a.cluster("x", "2")
		c.gets("x=2")
		c.gets("x=1")
		c.silent()
		a.cluster("x", "2") // told for nothing
		c.silent()
	})
}

func TestUnreadyEndpointsAreResentWhenReady(t *testing.T) {
	withAggregate(t, func(_ *testing.T, a *aggregate) {
		c := a.started()
		a.endpoints.unready("x")
		a.cluster("x", "2")
		c.getsOf("clusters", "x=2", "y=1")
		c.silent()
		a.endpoints.set("x", "1")
		c.getsOf("endpoints", "x=1")
		c.silent()
	})
}

func TestChangedEndpointIsSentAlone(t *testing.T) {
	withAggregate(t, func(_ *testing.T, a *aggregate) {
		c := a.started()
		a.endpoints.set("y", "2")
		c.getsOf("endpoints", "y=2")
		c.silent()
	})
}

func TestMutualRefreshesDoNotLoop(t *testing.T) {
	withAggregate(t, func(_ *testing.T, a *aggregate) {
		c := a.started()
		a.endpoints.put(&Resource{Name: "x", Version: "2", Refreshes: []Ref{{"clusters", "x"}, {"endpoints", "x"}, {"endpoints", "y"}, {"nothing", "x"}}})
		c.getsOf("endpoints", "x=2")
		a.cluster("x", "2")
		c.getsOf("clusters", "x=2", "y=1")
		c.getsOf("endpoints", "x=2")
		c.silent()
	})
}

// The protocol has no answer to a request for a type that is not served: the client
// waits for its timeout, and no other type is disturbed.
func TestUnservedTypeIsIgnored(t *testing.T) {
	withAggregate(t, func(t *testing.T, a *aggregate) {
		c := a.dialAs("", "")
		for _, names := range [][]string{nil, {"*"}, {"x"}} {
			c.subscribe("not-served", names...)
		}
		c.send(&discovery.DiscoveryRequest{TypeUrl: "not-served", ResponseNonce: "x", ErrorDetail: refusal("no")})
		c.silent()
		a.routes.set("r", "1")
		c.subscribe("routes", "r")
		c.getsOf("routes", "r=1")
		d := &deltaClient{dialPeer(a.t, "", func(s Stream[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]) error {
			return a.engine.StreamDelta(s, "")
		}, deltaContents)}
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: "not-served", InitialResourceVersions: map[string]string{"x": "1"}})
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: "not-served", ResourceNamesSubscribe: []string{"x"}})
		d.silent()
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: "routes", ResourceNamesSubscribe: []string{"r"}})
		d.gets("r=1")
		if got := a.routes.watched(); !slices.Equal(got, []string{"r", "r"}) {
			t.Errorf("watched %v, want r twice", got)
		}
		if _, err := a.engine.Fetch(context.Background(), &discovery.DiscoveryRequest{}, ""); err == nil {
			t.Error("a fetch without a type is answered")
		}
	})
}
