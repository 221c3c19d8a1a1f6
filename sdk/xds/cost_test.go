package xds

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// tap is a stream in memory that sends one request and then counts what it gets.
type tap struct {
	ctx      context.Context
	first    *discovery.DiscoveryRequest
	got      *sync.WaitGroup
	marshals bool // as a transport does
	bytes    *atomic.Int64
}

func (s *tap) Context() context.Context { return s.ctx }

func (s *tap) Recv() (*discovery.DiscoveryRequest, error) {
	if first := s.first; first != nil {
		s.first = nil
		return first, nil
	}
	<-s.ctx.Done()
	return nil, s.ctx.Err()
}

func (s *tap) Send(r *discovery.DiscoveryResponse) error {
	if s.marshals {
		body, err := proto.Marshal(r)
		if err != nil {
			return err
		}
		s.bytes.Add(int64(len(body)))
	}
	s.got.Done()
	return nil
}

// crowd has n streams on an engine of one type; it returns when each was answered.
func crowd(b *testing.B, typ Type[string], n int, marshals bool, names ...string) (got *sync.WaitGroup, bytes *atomic.Int64, leave func()) {
	b.Helper()
	e, err := New(Config[string]{Types: []Type[string]{typ}, Admit: func(context.Context) (string, error) { return "", nil }})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	got, bytes = &sync.WaitGroup{}, &atomic.Int64{}
	got.Add(n)
	for range n {
		go func() {
			_ = e.Stream(&tap{ctx, &discovery.DiscoveryRequest{ResourceNames: names}, got, marshals, bytes}, typ.URL)
		}()
	}
	got.Wait()
	return got, bytes, func() { cancel(); e.Close(nil) }
}

// inUse returns the bytes of the heap and of stacks.
func inUse() (heap, stacks uint64) {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse
}

// BenchmarkStreamOfASecret is what a stream of one secret holds, without grpc's share, and
// what a rotation costs it.
func BenchmarkStreamOfASecret(b *testing.B) {
	const n = 5000
	s := newMemorySource()
	s.set("a", "0")
	heap, stacks := inUse()
	got, _, leave := crowd(b, Type[string]{URL: thingURL, Source: s}, n, false, "a")
	defer leave()
	heapNow, stacksNow := inUse()
	version := 0
	for b.Loop() {
		version++
		got.Add(n)
		s.set("a", strconv.Itoa(version))
		got.Wait()
	}
	b.ReportMetric(float64(heapNow-heap)/n, "heap/stream")
	b.ReportMetric(float64(stacksNow-stacks)/n, "stack/stream")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/push")
}
