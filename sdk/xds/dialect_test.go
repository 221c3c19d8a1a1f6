package xds

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// speaker is a client of either dialect, for stories that are the same in both.
type speaker interface {
	want(names ...string) // subscribes to these, too
	unwant(name string)
	accept()              // the last response
	refuse(reason string) // the last response
	gets(contents ...string)
	takes() (contents []string, ok bool) // the next response, if there is one
	silent()
	silentFor(time.Duration)
}

// inEachDialect runs a story with a client of each.
func inEachDialect(t *testing.T, story func(t *testing.T, b *bench, c speaker), names ...string) {
	t.Helper()
	for name, dial := range map[string]func(*bench) speaker{
		"state of the world": func(b *bench) speaker { return &listing{client: b.dial("caller")} },
		"delta":              func(b *bench) speaker { return b.dialDelta("caller") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) { story(t, b, dial(b)) }, names...)
		})
	}
}

// withHold runs a story on an engine with another hold.
func withHold(t *testing.T, hold time.Duration, story func(t *testing.T, b *bench, c speaker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config[string]{Hold: hold}, newMemorySource())
		story(t, b, b.dialDelta(""))
		b.engine.Close(nil)
	})
}

// listing is a state-of-the-world client that lists all its names each time.
type listing struct {
	*client
	names []string
}

func (l *listing) want(names ...string) {
	l.t.Helper()
	l.names = append(l.names, names...)
	if l.last == nil {
		l.ask(l.names...)
		return
	}
	l.send(&discovery.DiscoveryRequest{ResourceNames: slices.Clone(names)})
}

func (l *listing) unwant(name string) {
	l.t.Helper()
	l.names = slices.DeleteFunc(l.names, func(n string) bool { return n == name })
	l.ack(l.names...)
}

func (l *listing) accept()              { l.t.Helper(); l.ack(l.names...) }
func (l *listing) refuse(reason string) { l.t.Helper(); l.nack(reason, l.names...) }

func (c *deltaClient) want(names ...string) { c.t.Helper(); c.subscribe(names...) }
func (c *deltaClient) unwant(name string)   { c.t.Helper(); c.unsubscribe(name) }
func (c *deltaClient) accept()              { c.t.Helper(); c.ack() }
func (c *deltaClient) refuse(reason string) { c.t.Helper(); c.nack(reason) }
