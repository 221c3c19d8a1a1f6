package discovery_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// hoard is a source with one version of one resource, which everybody may have.
type hoard struct{ *xds.Resource }

func newHoard(t *testing.T, size int) hoard {
	t.Helper()
	body, err := anypb.New(wrapperspb.Bytes(make([]byte, size)))
	if err != nil {
		t.Fatal(err)
	}
	return hoard{&xds.Resource{Name: "big", Version: "1", Body: body}}
}

func (s hoard) Peek(*discovery.Caller, string) (*xds.Resource, error) { return s.Resource, nil }

func (s hoard) Watch(*discovery.Caller, string, func(string)) (func(), error) {
	return func() {}, nil
}

func (s hoard) List(*discovery.Caller) ([]string, error) { return []string{s.Name}, nil }

func (s hoard) WatchList(*discovery.Caller, func()) (func(), error) { return func() {}, nil }

// The answers to clients that are slow to read are on their way all at once.
func TestCompleteAnswerIsSharedByStreams(t *testing.T) {
	const streams, size = 20, 1 << 20
	inBubble(t, func(_ *place, c *discovery.Config) {
		c.Types = append(c.Types, discovery.Type{URL: clusterURL, Source: newHoard(t, size), Complete: true})
	}, func(t *testing.T, p *place) {
		const window = 1 << 16 // what is read ahead must not grow
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web), grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
		defer conn.Close()
		var clients []*client
		for range streams {
			clients = append(clients, open(t, conn))
		}
		synctest.Wait()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, c := range clients {
			c.ask(clusterURL)
			synctest.Wait()
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > streams*size/2 {
			t.Errorf("%d answers of a megabyte took %d bytes", streams, got)
		}
		for _, c := range clients {
			c.gets("1")
			if got := c.last.GetResources(); len(got) != 1 || len(got[0].GetValue()) < size {
				t.Errorf("got %d resources", len(got))
			}
			c.hang()
		}
	})
}
