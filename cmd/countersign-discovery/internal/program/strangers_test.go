//go:build linux

package program

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/internal/test/oidctest"
)

// strangersMemory is what strangers may take, in bytes; the race detector takes more.
var strangersMemory = 100 << 20

// TestStrangersLeaveRoomForOthers has 2,000 streams with large tokens of an issuer that
// hangs come from one address, and somebody known from another.
func TestStrangersLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	hangs := make(chan struct{})
	i := oidctest.Start(t, func() { <-hangs })
	t.Cleanup(func() { close(hangs) })
	token := i.Token(t, strings.Repeat("x", 11_000), "discovery", time.Hour)
	p := withIssuer(t, i)
	ca := p.authority(t)
	before := p.memory(t)
	flood(t, caller{tls: ca.client(t, ""), token: token, from: "127.0.0.1"}, p.tls(t), 20, 100)
	eventually(t, func() bool { return p.refused(t) >= 1400 }, "all but 600 are refused", p.log)
	known := caller{tls: ca.client(t, "spiffe://cluster.local/ns/shop/sa/gateway"), from: "127.0.0.2"}
	if answer, err := known.first(t, p.tls(t), clusterURL); err != nil || len(answer.Resources) != 1 {
		t.Errorf("somebody known gets %v, %v", answer, err)
	}
	if took := p.memory(t) - before; took > strangersMemory {
		t.Errorf("the strangers took %d MiB", took>>20)
	}
}

var refusedStreams = regexp.MustCompile(`(?m)^\S*refused_streams_total\S* (\d+)$`)

// refused is how many streams were refused, for any reason.
func (p *program) refused(t *testing.T) (all int) {
	t.Helper()
	for _, found := range refusedStreams.FindAllStringSubmatch(p.metrics(t), -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		all += n
	}
	return all
}

// memory is the largest that the process has been, in bytes.
func (p *program) memory(t *testing.T) int {
	t.Helper()
	text := read(t, fmt.Sprintf("/proc/%d/status", p.PID()))
	most := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(text)
	if most == nil {
		t.Fatal(text)
	}
	n, err := strconv.Atoi(most[1])
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// flood opens streams on connections, each again five seconds after it ended, until the test ends.
func flood(t *testing.T, c caller, address string, connections, streams int) {
	t.Helper()
	ctx, hang := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+c.token))
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(hang)
	for range connections {
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(c.tls)), grpc.WithContextDialer(c.dial))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		for range streams {
			all.Go(func() {
				for ctx.Err() == nil {
					if s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx); err == nil {
						_, _ = s.Recv() // how it ends is counted by the server
					}
					select {
					case <-ctx.Done():
					case <-time.After(5 * time.Second):
					}
				}
			})
		}
	}
}
