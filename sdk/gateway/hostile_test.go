package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// serves has the service's streams be like this.
func (w *world) serves(stream func(adsServer) error) {
	w.service.mu.Lock()
	w.serve = stream
	w.service.mu.Unlock()
}

func silent(stream adsServer) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

// deaf reads a stream without answering.
func deaf(stream adsServer) {
	for {
		if _, err := stream.Recv(); err != nil {
			return
		}
	}
}

// asks watches names one after the other, and waits for nothing.
func (w *world) asks(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if _, err := w.client.Watch(secret.Caller{}, name, func(string) {}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// failed demands that streams failed like this, and that others were tried.
func (w *world) failed(want string) {
	w.t.Helper()
	synctest.Wait()
	if n := w.dialled(); n < 2 || !strings.Contains(w.log.String(), want) {
		w.t.Errorf("dialled %d times; want %q in\n%s", n, want, w.log)
	}
}

func TestSilentServiceIsRetried(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.serves(silent)
		w.watch(web)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := w.dialled(); n < 10 || n > 40 {
			t.Errorf("dialled %d times in 10 minutes", n)
		}
		if s := w.client.Status(); s.Connected || s.Failure == nil || s.Failure.Reason != "deadline exceeded" {
			t.Errorf("status %+v", s)
		}
	})
}

func TestServiceThatReadsNothingIsRetried(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	inWorld(t, nil, func(w *world) {
		nonce := strings.Repeat("n", 1<<20) // each is sent back
		w.serves(func(stream adsServer) error {
			for {
				if err := stream.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: nonce}); err != nil {
					return err
				}
			}
		})
		w.watch(web)
		time.Sleep(10 * time.Minute)
		w.failed("it has read nothing for 15s")
	})
}

func TestFloodingServiceIsThrottled(t *testing.T) {
	inWorld(t, func(_ *world, c *gateway.Config) { c.MaxNames = 10 }, func(w *world) {
		with := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Resources: []*discoveryv3.Resource{w.packed(w.pair(web))}}
		without := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, RemovedResources: []string{web}}
		w.serves(func(stream adsServer) error {
			go deaf(stream)
			for {
				for _, answer := range []*discoveryv3.DeltaDiscoveryResponse{with, without} {
					if err := stream.Send(answer); err != nil {
						return err
					}
				}
			}
		})
		w.asks(web)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		// 120 at once, and 100 in each second.
		if n := w.count(gateway.Taken) + w.count(gateway.Removed); n < 1100 || n > 1121 {
			t.Errorf("%d changes in ten seconds", n)
		}
	})
}

func TestAnswersAreThrottledByNames(t *testing.T) {
	inWorld(t, func(_ *world, c *gateway.Config) { c.MaxNames = 10 }, func(w *world) {
		others := make([]string, 60)
		for i := range others {
			others[i] = "kubernetes://other"
		}
		sent := 0
		w.serves(func(stream adsServer) error {
			go deaf(stream)
			for {
				if err := stream.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, RemovedResources: append([]string{web}, others...)}); err != nil {
					return err
				}
				w.service.mu.Lock()
				sent++
				w.service.mu.Unlock()
			}
		})
		w.asks(web)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		w.service.mu.Lock()
		defer w.service.mu.Unlock()
		if sent < 300*100/61 || sent > 300*100/61+200 { // some wait in gRPC's buffers
			t.Errorf("%d answers in five minutes", sent)
		}
	})
}

func TestUnrequestedResourcesAreIgnored(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		verdicts := make(chan *discoveryv3.DeltaDiscoveryRequest, 10)
		good := w.pair(web)
		unasked := w.packed(w.pair("kubernetes://other"))
		unasked.Version = strings.Repeat("v", 1<<20)
		w.serves(func(stream adsServer) error {
			_, _ = stream.Recv()
			_ = stream.Send(&discoveryv3.DeltaDiscoveryResponse{
				TypeUrl: typeURL, Nonce: "1", RemovedResources: []string{"default", "kubernetes://gone"},
				Resources: []*discoveryv3.Resource{unasked, {Name: "ROOTCA"}, nil, w.packed(good)},
			})
			verdict, _ := stream.Recv()
			verdicts <- verdict
			return silent(stream)
		})
		w.watch(web)
		w.holds(web, good)
		if v := <-verdicts; v.GetResponseNonce() != "1" || v.GetErrorDetail() != nil {
			t.Errorf("answered %v", v)
		}
		if names := w.client.Status().Names; len(names) != 1 || w.count(gateway.Refused)+w.count(gateway.Removed) != 0 || strings.Contains(w.log.String(), "other") {
			t.Errorf("%+v\n%s", names, w.log)
		}
	})
}

func TestAnswerOfOtherTypeEndsStream(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.serves(func(stream adsServer) error {
			go deaf(stream)
			for range 3 { // the others wait for a reader
				_ = stream.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster", Resources: []*discoveryv3.Resource{w.packed(w.pair(web))}})
			}
			return silent(stream)
		})
		w.watch(web)
		w.pass()
		w.answers(web, xds.ErrNotReady)
		w.failed("envoy.config.cluster.v3.Cluster")
	})
}

func TestOversizedAnswerEndsStream(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.serves(func(stream adsServer) error {
			go deaf(stream)
			_ = stream.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, SystemVersionInfo: strings.Repeat("v", 8<<20)})
			return silent(stream)
		})
		w.watch(web)
		w.pass()
		w.failed("received message larger than max")
	})
}

func TestOversizedVersionIsNotHeld(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		good := w.pair(web)
		for _, size := range []int{1024, 1025} {
			item := w.packed(w.pair(web))
			if size == 1024 {
				item = w.packed(good)
			}
			item.Version = strings.Repeat("v", size)
			w.change(func() { w.items[web] = item })
			w.watch(web)
			w.holds(web, good)
		}
		if refused := w.client.Status().Names[0].Refused; !strings.Contains(refused, "its version has 1025 bytes, 1024 are allowed") {
			t.Errorf("refused: %q", refused)
		}
	})
}

// A name is dropped to make room, and watched again before the service gets the unsubscription.
func TestDroppedNameCanBeWatchedAgain(t *testing.T) {
	inWorld(t, func(_ *world, c *gateway.Config) { c.MaxNames = 2 }, func(w *world) {
		other := "kubernetes://other"
		good := w.pair(web)
		w.put(web, good)
		w.put(other, w.pair(other))
		time.Sleep(time.Minute) // from now on sweeps are on the fifth minutes
		_, stopWeb := w.watch(web)
		_, stopOther := w.watch(other)
		time.Sleep(time.Minute)
		stopWeb()
		stopOther()
		time.Sleep(10*time.Minute + time.Second)
		w.asks("kubernetes://third", web) // the first makes room
		w.holds(web, good)
	})
}
