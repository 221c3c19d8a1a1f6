package xds

import (
	"fmt"
	"strconv"
	"testing"
)

// BenchmarkCompleteAnswers is what 1,000 streams hold that are subscribed to 1,000 clusters
// of a kilobyte by the wildcard, and what a change of one cluster costs each.
func BenchmarkCompleteAnswers(b *testing.B) {
	const streams, clusters = 1000, 1000
	s := newCatalog()
	body := make([]byte, 1000)
	var names []string
	for i := range clusters {
		name := fmt.Sprintf("outbound|80||service-%d.shop.svc.cluster.local", i)
		names = append(names, name)
		s.put(&Resource{Name: name, Version: "0", Body: bodyOf(string(body))})
	}
	s.list(names...)
	heap, _ := inUse()
	got, bytes, leave := crowd(b, Type[string]{URL: thingURL, Source: &shared{s}, Complete: true}, streams, true)
	defer leave()
	heapNow, _ := inUse()
	bytes.Store(0)
	version := 0
	for b.Loop() {
		version++
		got.Add(streams)
		s.put(&Resource{Name: names[0], Version: strconv.Itoa(version), Body: bodyOf(string(body))})
		got.Wait()
	}
	b.ReportMetric(float64(heapNow-heap)/streams, "heap/stream")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/streams, "ns/push")
	b.ReportMetric(float64(bytes.Load())/float64(b.N)/streams, "bytes/push")
}

// shared is a catalog that is asked by a thousand streams and copies no list.
type shared struct{ *catalog }

func (s *shared) List(string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names, nil
}
