//go:build !race

package discovery_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/hub"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/polling"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/xds"
)

const (
	streams = 1000
	apiece  = 10 // streams that watch the same secret
)

// arrival is a version that a client has got.
type arrival struct {
	version string
	at      time.Time
}

// thousand are streams on connections of their own, over mutual TLS on loopback; of
// each group of ten all watch one secret, and everybody watches "all".
type thousand struct {
	t      testing.TB
	source *memorySource
	hub    *hub.Hub[string]
	server *discovery.Server
	came   chan arrival
	looks  atomic.Int64 // at the source
}

// told is a memorySource whose changes are batched like those of an informer.
type told struct {
	*memorySource
	hub   *hub.Hub[string]
	looks *atomic.Int64
}

func (s told) Watch(_ *discovery.Caller, name string, notify func(string)) (func(), error) {
	return s.hub.Watch(name, func() { notify(name) }), nil
}

// Peek shares the body, as a source of many readers does.
func (s told) Peek(_ *discovery.Caller, name string) (*xds.Resource, error) {
	s.looks.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := anypb.New(wrapperspb.String(s.texts[name]))
	return &xds.Resource{Name: name, Version: s.texts[name], Body: body}, err
}

func newThousand(t testing.TB) *thousand {
	t.Helper()
	root := certtest.Root(t)
	th := &thousand{t: t, source: newMemorySource(), hub: hub.New[string](hub.Config{}), came: make(chan arrival, 10*streams)}
	t.Cleanup(th.hub.Close)
	for group := range streams / apiece {
		th.source.texts[groupName(group)] = "first"
	}
	th.source.texts["all"] = "first"
	certificates := authn.Certificates{Roots: func(string) *pki.Bundle { return pki.NewBundle(root.Cert) }}
	server, addr := listen(t, discovery.Config{
		Types: []discovery.Type{{URL: secretURL, Source: told{th.source, th.hub, &th.looks}}}, Authenticator: certificates, LocalCluster: "local",
		TLS: &tls.Config{Certificates: []tls.Certificate{*root.Leaf(t, time.Hour).TLS()}}, Times: discovery.Times{Drain: -1},
	})
	th.server = server
	pool := x509.NewCertPool()
	pool.AddCert(root.Cert)
	pair := root.Leaf(t, time.Hour, web).TLS()
	for i := range streams {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			RootCAs: pool, ServerName: "server", Certificates: []tls.Certificate{*pair},
		})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		th.follow(open(t, conn), groupName(i/apiece))
	}
	th.wait(streams)
	return th
}

func groupName(i int) string { return fmt.Sprintf("kubernetes://group-%d", i) }

// follow has a client take and acknowledge what comes until the stream ends.
func (th *thousand) follow(c *client, group string) {
	th.t.Cleanup(c.hang)
	c.ask(secretURL, group, "all")
	go func() {
		for {
			got, err := c.ads.Recv()
			if err != nil {
				return
			}
			c.last = got
			version := got.GetVersionInfo()
			th.came <- arrival{version, time.Now()}
			c.answer(nil, group, "all")
		}
	}()
}

// wait returns the next arrivals.
func (th *thousand) wait(n int) []arrival {
	th.t.Helper()
	out := make([]arrival, n)
	deadline := time.After(patience)
	for i := range out {
		select {
		case out[i] = <-th.came:
		case <-deadline:
			th.t.Fatalf("%d of %d have come", i, n)
		}
	}
	return out
}

// change changes a secret and returns how long it took to reach its watchers.
func (th *thousand) change(name, version string, watchers int) (took []time.Duration) {
	th.t.Helper()
	th.source.mu.Lock()
	th.source.texts[name] = version
	th.source.mu.Unlock()
	began := time.Now()
	th.hub.Changed(name)
	for _, a := range th.wait(watchers) {
		if a.version != version {
			th.t.Fatalf("version %q came, want %q", a.version, version)
		}
		took = append(took, a.at.Sub(began))
	}
	return took
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// How soon is BenchmarkChange's; a busy machine changes nothing in how much is looked at for that.
func TestChangeReachesItsStreamsAloneAmongAThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	th := newThousand(t)
	before := th.looks.Load()
	for i := range 50 {
		th.change(groupName(i), fmt.Sprint("second ", i), apiece)
	}
	if got := th.looks.Load() - before; got > 50*apiece { // one for each push
		t.Errorf("%d looks at the source for 50 changes of %d streams each", got, apiece)
	}
	if len(th.came) > 0 {
		t.Error("a stream got a notice without watching it")
	}
	polling.Until(t, patience, "each push is counted, which its client may be sooner than", func() bool {
		return th.server.Metrics().Sent.Count >= 50*apiece
	})
	if m := th.server.Metrics(); m.Sent.Count != 50*apiece || m.Streams != streams {
		t.Errorf("%d pushes after a change were measured on %d streams", m.Sent.Count, m.Streams)
	}
}

func BenchmarkChange(b *testing.B) {
	th := newThousand(b)
	for name, of := range map[string]struct {
		name     func(i int) string
		watchers int
	}{
		"of ten streams' secret":        {func(i int) string { return groupName(i % (streams / apiece)) }, apiece},
		"of a thousand streams' secret": {func(int) string { return "all" }, streams},
	} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				took = append(took, th.change(of.name(i), fmt.Sprint(name, time.Now().UnixNano()), of.watchers)...)
			}
			b.ReportMetric(float64(median(took).Microseconds())/1000, "ms-median")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
		})
	}
}
