//go:build e2e

package kubestore_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/ondemand/kubestore"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/token"
)

var nameCount = flag.Int("names", 50_000, "names in the store")

// BenchmarkStore measures a real API server and etcd with so many names: bytes in etcd, time and
// memory of a start, and how long a claim and a change take.
func BenchmarkStore(b *testing.B) {
	cluster := kubetest.Start(b, kubetest.Options{})
	cluster.Namespace(namespace)
	cluster.Bind(namespace, cluster.ServiceAccount(namespace, "agent"), rights(b)...)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cluster.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 32}
	defer transport.CloseIdleConnections()
	open := func() *kubestore.Store {
		s, err := kubestore.Open(kubestore.Config{
			API:       kubeapi.Config{URL: cluster.URL, Transport: transport, Token: token.Static{Value: ca.Token(cluster.Token(namespace, "agent"))}},
			Namespace: namespace, Log: slog.New(slog.DiscardHandler),
		})
		must(b, err)
		return s
	}
	first := open()
	empty := sizeOf(b, cluster)
	filling := fill(b, first, *nameCount)
	b.Logf("%d names: %.0f stored a second; %.0f bytes of etcd a name (record of %d bytes)", *nameCount,
		float64(*nameCount)/filling.took.Seconds(), float64(sizeOf(b, cluster)-empty)/float64(*nameCount), filling.record)

	second, before, begun := open(), heap(), time.Now()
	index, err := second.Index(b.Context())
	must(b, err)
	took := time.Since(begun)
	listed := len(index) // the Set keeps the entries elsewhere
	b.Logf("start: %d names listed in %.2f s; %.0f bytes of memory a name", listed, took.Seconds(), float64(heap()-before)/float64(listed))

	claimed(b, second)
	changed(b, first, second, filling.last)
	runtime.KeepAlive(second)
}

type filled struct {
	took   time.Duration
	record int
	last   secret.Record
}

func fill(b *testing.B, s *kubestore.Store, n int) (f filled) {
	b.Helper()
	_, f.last = certificate("n.shop.example.org", catest.NewCA(catest.Options{Intermediates: 1}), time.Now().Add(90*24*time.Hour))
	f.record = len(f.last.Content)
	begun := time.Now()
	var writers sync.WaitGroup
	for w := range 16 {
		writers.Go(func() {
			for i := w; i < n; i += 16 {
				if err := s.Store(b.Context(), entry(i), f.last); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	f.took = time.Since(begun)
	return f
}

func entry(i int) secret.Entry {
	ends := time.Now().Add(90 * 24 * time.Hour)
	return secret.Entry{Name: fmt.Sprintf("n%d.shop.example.org", i), Renew: ends.Add(-30 * 24 * time.Hour), Ends: ends}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below
}

// sizeOf is the size of etcd's data that is in use, which the API server reports every 30 seconds.
func sizeOf(b *testing.B, c *kubetest.Cluster) int64 {
	b.Helper()
	time.Sleep(35 * time.Second)
	text, err := c.Client().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	must(b, err)
	for line := range bytes.Lines(text) {
		if value, ok := strings.CutPrefix(string(line), "apiserver_storage_size_bytes{"); ok {
			_, number, _ := strings.Cut(strings.TrimSpace(value), "} ")
			size, err := strconv.ParseFloat(number, 64)
			must(b, err)
			return int64(size)
		}
	}
	b.Fatal("the API server reports no size of etcd")
	return 0
}

// claimed times a claim and its end.
func claimed(b *testing.B, s *kubestore.Store) {
	b.Helper()
	const n = 200
	begun := time.Now()
	for i := range n {
		c, err := s.Claim(b.Context(), fmt.Sprintf("c%d.shop.example.org", i))
		must(b, err)
		must(b, c.Release(b.Context()))
	}
	b.Logf("claim and release: %.1f ms", float64(time.Since(begun).Milliseconds())/n)
}

// changed times how long it takes until another agent sees a stored record.
func changed(b *testing.B, from, to *kubestore.Store, r secret.Record) {
	b.Helper()
	seen := make(chan string, 1000)
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = to.Changes(ctx, func(e secret.Entry, _ bool) { seen <- e.Name })
	}()
	defer func() { stop(); <-done }()
	var total time.Duration
	const n = 50
	for i := range n {
		e := entry(i)
		e.Name = fmt.Sprintf("w%d.shop.example.org", i)
		must(b, from.Store(b.Context(), e, r))
		begun := time.Now()
		for name := range seen {
			if name == e.Name {
				break
			}
		}
		if i > 0 { // the first waits for the watch
			total += time.Since(begun)
		}
	}
	b.Logf("a stored certificate reaches another agent after %.1f ms", float64(total.Microseconds())/1000/(n-1))
}
