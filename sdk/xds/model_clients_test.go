package xds

import (
	"maps"
	"slices"
	"strings"
	"testing/synctest"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// line is a model's client on the engine.
type line[Q, R any] struct {
	*model
	dial  func(told func(R)) *peer[Q, R]
	parse func(R) *response
	peer  *peer[Q, R]
}

// observed shows the model each response before it goes out.
type observed[Q, R any] struct {
	Stream[Q, R]
	tell func(R)
}

func (t observed[Q, R]) Send(r R) error {
	t.tell(r)
	return t.Stream.Send(r)
}

// call opens a stream and says the first words.
func (l *line[Q, R]) call(first Q) {
	l.peer = l.dial(func(r R) { l.made(l.parse(r)) })
	l.say(first)
}

func (l *line[Q, R]) say(req Q) { l.peer.send(req) }

func (l *line[Q, R]) leave() {
	l.peer.cancel()
	synctest.Wait()
}

func (l *line[Q, R]) read() bool {
	synctest.Wait()
	select {
	case <-l.peer.responses:
		l.model.read++
		synctest.Wait()
		return true
	default:
		return false
	}
}

// modelSotw is a client that lists all it wants in each request.
type modelSotw struct {
	line[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse]
	version string // that it accepted last
}

func newModelSotw(b *bench, m *model) dialect {
	return &modelSotw{line: line[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse]{
		model: m, parse: parseSotw,
		dial: func(tell func(*discovery.DiscoveryResponse)) *peer[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse] {
			return dialPeer(b.t, "", func(s Stream[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse]) error {
				return b.engine.Stream(observed[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse]{s, tell}, thingURL)
			}, contents)
		},
	}}
}

func (c *modelSotw) connect() {
	c.reset(map[string]string{})
	c.call(&discovery.DiscoveryRequest{ResourceNames: c.list(), VersionInfo: c.version})
}

func (c *modelSotw) list() []string { return slices.Sorted(maps.Keys(c.wants)) }

// request is the list of what is wanted, with what was read last.
func (c *modelSotw) request() *discovery.DiscoveryRequest {
	req := &discovery.DiscoveryRequest{ResourceNames: c.list(), VersionInfo: c.version}
	if last := c.lastRead(); last != nil {
		req.ResponseNonce = last.nonce
	}
	return req
}

// listed is what the rules make of a request: without a nonce it adds, with one
// that is not the last response's it is ignored.
func (c *modelSotw) listed(req *discovery.DiscoveryRequest) {
	switch {
	case req.ResponseNonce == "":
	case c.lastRead() != c.responses[len(c.responses)-1]:
		return
	default:
		for name := range maps.Clone(c.names) {
			if !c.wants[name] {
				c.drop(name)
			}
		}
	}
	maps.Copy(c.names, c.wants)
}

func (c *modelSotw) want(name string) {
	c.wants[name] = true
	c.listed(c.request())
	c.say(c.request())
}

func (c *modelSotw) unwant(name string) {
	delete(c.wants, name)
	c.listed(c.request())
	c.say(c.request())
}

func (c *modelSotw) answer(ok bool) {
	last := c.lastRead()
	if last == nil {
		return
	}
	c.answers(ok)
	if ok {
		c.version = last.version
	}
	req := c.request()
	if !ok {
		req.ErrorDetail = refusal("no")
	}
	c.listed(req)
	c.say(req)
}

func (c *modelSotw) stale() {
	if len(c.responses) < 2 {
		return // to the first request on a stream, any nonce will do
	}
	c.say(&discovery.DiscoveryRequest{ResourceNames: modelNames, ResponseNonce: c.responses[0].nonce, VersionInfo: c.responses[0].version})
	c.say(&discovery.DiscoveryRequest{ResponseNonce: "of-another-stream"})
}

func (c *modelSotw) greedy() { c.say(&discovery.DiscoveryRequest{ResourceNames: greed()}) }

func parseSotw(r *discovery.DiscoveryResponse) *response {
	out := &response{nonce: r.GetNonce(), version: r.GetVersionInfo(), resources: map[string]string{}}
	for _, content := range contents(r) {
		name, version, _ := strings.Cut(content, "=")
		out.resources[name] = version
	}
	return out
}

// modelDelta is a client of the other dialect.
type modelDelta struct {
	line[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]
}

func newModelDelta(b *bench, m *model) dialect {
	m.removes = true
	return &modelDelta{line[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]{
		model: m, parse: parseDelta,
		dial: func(tell func(*discovery.DeltaDiscoveryResponse)) *peer[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse] {
			return dialPeer(b.t, "", func(s Stream[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]) error {
				return b.engine.StreamDelta(observed[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]{s, tell}, thingURL)
			}, deltaContents)
		},
	}}
}

func (c *modelDelta) connect() {
	c.reset(maps.Clone(c.holds))
	c.call(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: slices.Sorted(maps.Keys(c.wants)), InitialResourceVersions: maps.Clone(c.holds)})
}

func (c *modelDelta) want(name string) {
	c.wants[name], c.names[name] = true, true
	c.forget(name)
	c.say(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{name}})
}

func (c *modelDelta) unwant(name string) {
	delete(c.wants, name)
	delete(c.holds, name)
	c.drop(name)
	c.say(&discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{name}})
}

func (c *modelDelta) answer(ok bool) {
	last := c.lastRead()
	if last == nil {
		return
	}
	c.answers(ok)
	req := &discovery.DeltaDiscoveryRequest{ResponseNonce: last.nonce}
	if !ok {
		req.ErrorDetail = refusal("no")
	}
	c.say(req)
}

func (c *modelDelta) stale() {
	for _, nonce := range []string{"of-another-stream", "-"} {
		c.say(&discovery.DeltaDiscoveryRequest{ResponseNonce: nonce, ErrorDetail: refusal("stale")})
		c.say(&discovery.DeltaDiscoveryRequest{ResponseNonce: nonce})
	}
}

func (c *modelDelta) greedy() {
	one := slices.Sorted(maps.Keys(c.names))[:1]
	c.say(&discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: one, ResourceNamesSubscribe: greed()})
}

func parseDelta(r *discovery.DeltaDiscoveryResponse) *response {
	out := &response{nonce: r.GetNonce(), version: r.GetSystemVersionInfo(), resources: map[string]string{}, removed: r.GetRemovedResources()}
	for _, resource := range r.GetResources() {
		out.resources[resource.GetName()] = resource.GetVersion()
	}
	return out
}
