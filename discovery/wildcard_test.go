package discovery_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/discovery"
)

const clusterURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// catalog is a memorySource that lists its content to every caller with a cluster.
type catalog struct{ *memorySource }

func (s catalog) List(caller *discovery.Caller) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.texts {
		if caller.Cluster != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

func (s catalog) WatchList(caller *discovery.Caller, notify func()) (func(), error) {
	return s.Watch(caller, "", func(string) { notify() })
}

func TestWildcardIsServedShownAndMeasured(t *testing.T) {
	memorySource := newMemorySource()
	inBubble(t, func(_ *place, c *discovery.Config) {
		c.Types = append(c.Types, discovery.Type{URL: clusterURL, Source: catalog{memorySource}, Complete: true})
	}, func(t *testing.T, p *place) {
		memorySource.put("one", "1")
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		c := open(t, conn)
		c.ask(clusterURL)
		c.gets("1")
		c.answer(nil)
		memorySource.mu.Lock()
		memorySource.texts["two"] = "2"
		memorySource.mu.Unlock()
		memorySource.put("", "") // the list has changed; an empty name does not count
		synctest.Wait()
		got, err := c.ads.Recv()
		if err != nil || len(got.GetResources()) < 2 {
			t.Fatalf("got %v, %v", got, err)
		}
		c.last = got
		c.answer(nil)
		synctest.Wait()
		types := p.server.Status().Streams[0].Types
		i := slices.IndexFunc(types, func(t discovery.TypeStatus) bool { return t.Type == clusterURL })
		if i < 0 || types[i].Subscribed < 2 || types[i].Acked != got.GetVersionInfo() {
			t.Errorf("shown is %+v", types)
		}
		if m := p.server.Metrics(); m.Sent.Count != 1 || m.Acked.Count != 1 {
			t.Errorf("measured: sent %+v, acked %+v", m.Sent, m.Acked)
		}
		c.hang()
	})
}
