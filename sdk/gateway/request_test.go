package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/gateway"
)

// requests are what a silent service received, or one with just this first reply.
func (w *world) requests(answers ...*discoveryv3.DeltaDiscoveryResponse) func() []*discoveryv3.DeltaDiscoveryRequest {
	var mu sync.Mutex
	var all []*discoveryv3.DeltaDiscoveryRequest
	w.serves(func(stream adsServer) error {
		for _, answer := range answers {
			_ = stream.Send(answer)
		}
		for {
			req, err := stream.Recv()
			if err != nil {
				return err
			}
			mu.Lock()
			all = append(all, req)
			mu.Unlock()
		}
	})
	return func() []*discoveryv3.DeltaDiscoveryRequest {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func TestClusterIsClaimedWhereConfigured(t *testing.T) {
	for _, cluster := range []string{"", "west"} {
		inWorld(t, func(_ *world, c *gateway.Config) { c.Cluster = cluster }, func(w *world) {
			w.watch(web)
			if got := w.called()[0].headers.Get("clusterid"); strings.Join(got, ",") != cluster || len(got) != len(cluster)/4 {
				t.Errorf("%q: headers %q", cluster, got)
			}
		})
		inWorld(t, func(_ *world, c *gateway.Config) { c.Cluster = cluster }, func(w *world) {
			told := w.requests()
			w.watch(web)
			node := told()[0].GetNode()
			if got, has := node.GetMetadata().GetFields()["CLUSTER_ID"]; has != (cluster != "") || got.GetStringValue() != cluster || node.GetId() == "" {
				t.Errorf("%q: node %v", cluster, node)
			}
		})
	}
}

func TestEachNameIsAskedForOnce(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		told, other := w.requests(), "kubernetes://other"
		w.watch(web)
		w.watch(web)
		if all := told(); len(all) != 1 || !slices.Equal(all[0].GetResourceNamesSubscribe(), []string{web}) {
			t.Errorf("notified %v", all)
		}
		w.watch(other)
		if all := told(); len(all) != 2 || !slices.Equal(all[1].GetResourceNamesSubscribe(), []string{other}) || all[1].GetNode() != nil {
			t.Errorf("notified %v", all)
		}
	})
}

func TestFirstFaultsOfRefusedAnswerAreReported(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		answer := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: "n"}
		var names []string
		for i := range 7 {
			names = append(names, fmt.Sprintf("kubernetes://web%d", i))
			answer.Resources = append(answer.Resources, &discoveryv3.Resource{Name: names[i]})
		}
		w.stop()
		w.start()
		for _, name := range names {
			w.asks(name)
		}
		told := w.requests(answer)
		w.pass()
		verdict := told()[len(told())-1]
		if n := strings.Count(verdict.GetErrorDetail().GetMessage(), "not a Secret"); n != 5 || verdict.GetResponseNonce() != "n" || w.count(gateway.Refused) != 7 {
			t.Errorf("%d faults are in %v, %d refused", n, verdict, w.count(gateway.Refused))
		}
	})
}

func TestSevenMegabyteAnswerIsAccepted(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		good := w.pair(web)
		w.requests(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, SystemVersionInfo: strings.Repeat("v", 7<<20), Resources: []*discoveryv3.Resource{w.packed(good)}})
		w.watch(web)
		w.holds(web, good)
	})
}

func TestStatusShowsWhyStreamEnded(t *testing.T) {
	for code, want := range map[codes.Code]string{
		codes.Unauthenticated: "unauthenticated: ", codes.PermissionDenied: "denied: ", codes.ResourceExhausted: "rate limited: ", codes.InvalidArgument: "invalid request: ",
		codes.DeadlineExceeded: "deadline exceeded: ", codes.Internal: "internal error: ", codes.Unavailable: "unavailable: ", codes.DataLoss: "unavailable: ",
		codes.Unimplemented: "unimplemented: it has no incremental ADS (DeltaAggregatedResources), which istiod and countersign-discovery have: ",
	} {
		inWorld(t, nil, func(w *world) {
			w.serves(func(adsServer) error { return status.Error(code, "not now") })
			w.watch(web)
			since := w.client.Status().Since
			time.Sleep(time.Minute)
			synctest.Wait()
			s := w.client.Status()
			if s.Failure == nil || s.Failure.Text != want+"not now" || !strings.HasPrefix(want, s.Failure.Reason+": ") {
				t.Errorf("%s: %+v, want %s", code, s.Failure, want)
			}
			least := 4
			if code == codes.ResourceExhausted || code == codes.Unimplemented { // waits of up to 10 minutes
				least = 1
			}
			if n := w.count(gateway.Failed); n < least || n > 12 || s.Connected || since.IsZero() || !s.Since.Equal(since) {
				t.Errorf("%s: failed %d times in a minute, away since %s, first %s", code, n, s.Since, since)
			}
		})
	}
}

func TestStatusOfEachName(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		held, unknown, waiting := web, "kubernetes://gone", "kubernetes://late"
		w.put(held, w.pair(held))
		w.change(func() { w.items[waiting] = nil })
		time.Sleep(time.Hour)
		taken := time.Now()
		for _, name := range []string{waiting, unknown, held, held} {
			w.watch(name)
		}
		w.put(held, &tlsv3.Secret{Name: held})
		time.Sleep(time.Minute)
		s := w.client.Status()
		if len(s.Names) != 3 || s.Names[0].Name != held || s.Names[1].Name != unknown || s.Names[2].Name != waiting {
			t.Fatalf("%+v", s.Names)
		}
		if n := s.Names[0]; n.State != gateway.Held || n.Watchers != 2 || !n.Since.Equal(taken) || n.Version == "" || n.Refused == "" {
			t.Errorf("%+v", n)
		}
		if s.Names[1].State != gateway.Unknown || s.Names[2].State != gateway.Waiting || w.count(gateway.Connected) != 1 || w.count(gateway.Taken) != 1 {
			t.Errorf("%+v, connected %d times", s.Names, w.count(gateway.Connected))
		}
	})
}
