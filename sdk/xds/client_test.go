package xds

import (
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
)

// client speaks the state-of-the-world protocol by hand; what it gets is
// "name=version".
type client struct {
	*peer[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse]
}

// dial opens a stream as caller.
func (b *bench) dial(caller string) *client { return b.dialAs(caller, thingURL) }

func (b *bench) dialAs(caller, implied string) *client {
	return &client{dialPeer(b.t, caller, func(s Stream[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse]) error {
		return b.engine.Stream(s, implied)
	}, contents)}
}

// holding opens a stream that was sent version 1 of these and has not acknowledged it.
func (b *bench) holding(names ...string) *client {
	b.t.Helper()
	b.source.have(names...)
	c := b.dial("")
	c.ask(names...)
	c.gets(firsts(names)...)
	return c
}

// ask sends a request without a nonce.
func (c *client) ask(names ...string) {
	c.t.Helper()
	c.send(&discovery.DiscoveryRequest{ResourceNames: names, Node: &core.Node{Id: "node-1"}})
}

// ack acknowledges the last response and lists names.
func (c *client) ack(names ...string) {
	c.t.Helper()
	c.send(&discovery.DiscoveryRequest{
		ResourceNames: names, VersionInfo: c.last.GetVersionInfo(), ResponseNonce: c.last.GetNonce(), TypeUrl: c.last.GetTypeUrl(),
	})
}

// nack refuses the last response.
func (c *client) nack(reason string, names ...string) {
	c.t.Helper()
	c.send(&discovery.DiscoveryRequest{
		ResourceNames: names, ResponseNonce: c.last.GetNonce(), TypeUrl: c.last.GetTypeUrl(), ErrorDetail: refusal(reason),
	})
}

func refusal(reason string) *rpcstatus.Status { return &rpcstatus.Status{Message: reason} }

func contents(r *discovery.DiscoveryResponse) []string {
	var got []string
	for _, body := range r.GetResources() {
		got = append(got, string(body.GetValue()))
	}
	slices.Sort(got)
	return got
}

// deltaClient speaks the incremental protocol by hand; what it gets is
// "name=version", and "-name" for what is removed.
type deltaClient struct {
	*peer[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]
}

// dialDelta opens an incremental stream as caller.
func (b *bench) dialDelta(caller string) *deltaClient {
	return &deltaClient{dialPeer(b.t, caller, func(s Stream[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]) error {
		return b.engine.StreamDelta(s, thingURL)
	}, deltaContents)}
}

// holdingDelta is [bench.holding] on an incremental stream.
func (b *bench) holdingDelta(names ...string) *deltaClient {
	b.t.Helper()
	b.source.have(names...)
	c := b.dialDelta("")
	c.subscribe(names...)
	c.gets(firsts(names)...)
	return c
}

// firsts returns what a client gets that is sent version 1 of these.
func firsts(names []string) []string {
	var got []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		got = append(got, name+"=1")
	}
	return got
}

func (c *deltaClient) subscribe(names ...string) {
	c.t.Helper()
	c.send(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: names, Node: &core.Node{Id: "node-1"}})
}

func (c *deltaClient) unsubscribe(names ...string) {
	c.t.Helper()
	c.send(&discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: names})
}

// resume is a first request after a reconnect, with "name=version" for what the
// client has.
func (c *deltaClient) resume(has map[string]string, names ...string) {
	c.t.Helper()
	c.send(&discovery.DeltaDiscoveryRequest{InitialResourceVersions: has, ResourceNamesSubscribe: names})
}

// ack acknowledges the last response.
func (c *deltaClient) ack() {
	c.t.Helper()
	c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: c.last.GetNonce()})
}

// nack refuses the last response.
func (c *deltaClient) nack(reason string) {
	c.t.Helper()
	c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: c.last.GetNonce(), ErrorDetail: refusal(reason)})
}

func deltaContents(r *discovery.DeltaDiscoveryResponse) []string {
	var got []string
	for _, resource := range r.GetResources() {
		content := resource.GetName() + "=" + resource.GetVersion()
		if body := string(resource.GetResource().GetValue()); body != content {
			content += " with the body " + body
		}
		got = append(got, content)
	}
	for _, name := range r.GetRemovedResources() {
		got = append(got, "-"+name)
	}
	slices.Sort(got)
	return got
}
