package discovery_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/discovery"
)

func TestStatusShowsAcceptedAndRefusedVersions(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		c := open(t, conn, "authorization", "Bearer seen-by-nobody")
		c.node = &corev3.Node{Id: "node\n\u202e" + strings.Repeat("x", 300)}
		c.ask(thingURL, "a", "none")
		c.gets("1")
		synctest.Wait()
		of := func() discovery.TypeStatus { return p.server.Status().Streams[0].Types[0] }
		if got := of(); got.Type != thingURL || got.Subscribed != 2 || got.Sent != "1" || got.Acked != "" || got.Pushes != 1 {
			t.Errorf("after the first push: %+v", got)
		}
		c.answer(nil, "a", "none")
		synctest.Wait()
		if got := of(); got.Acked != "1" {
			t.Errorf("after the acknowledgement: %+v", got)
		}
		p.source.put("a", "2")
		c.gets("2")
		c.answer(&rpcstatus.Status{Code: 3, Message: "I do not like it"}, "a")
		synctest.Wait()
		got := of()
		if got.Acked != "1" || got.Sent != "2" || got.Subscribed != 1 || got.Refused == nil || got.Refused.Version != "2" || got.Refused.Reason != "I do not like it" {
			t.Errorf("after the refusal: %+v %+v", got, got.Refused)
		}
		if m := p.server.Metrics(); !got.Refusing() || m.Subscribed[thingURL] != 1 || m.Refusing[thingURL] != 1 {
			t.Errorf("it refuses what it was sent last: %t, %+v", got.Refusing(), m)
		}
		p.source.put("a", "3")
		c.gets("3")
		c.answer(nil, "a")
		synctest.Wait()
		if m := p.server.Metrics(); of().Refused == nil || of().Refusing() || m.Subscribed[thingURL] != 1 || m.Refusing[thingURL] != 0 {
			t.Errorf("it refused something before: %+v, %+v", of(), m)
		}
		stream := p.server.Status().Streams[0]
		if stream.Node[:6] != `node\n` || len(stream.Node) > 256 || stream.Identity != web || stream.Cluster != "local" || stream.Service != "ADS" {
			t.Errorf("the stream is %+v", stream)
		}
		if lasts := stream.Expires.Sub(stream.Since); lasts < 54*time.Minute || lasts > 66*time.Minute {
			t.Errorf("it is shown to last %s", lasts)
		}
		text, err := json.Marshal(p.server.Status())
		if err != nil || strings.Contains(string(text), "seen-by-nobody") || strings.Contains(string(text), "PRIVATE") {
			t.Errorf("%s, %v", text, err)
		}
		c.hang()
		synctest.Wait()
		if left, n := p.server.Status().Streams, p.server.Metrics().Subscribed; len(left) != 0 || len(n) == 0 || n[thingURL] != 0 {
			t.Errorf("left are %+v, %v", left, n)
		}
	})
}

func TestTypesFollowEnvoyOrder(t *testing.T) {
	memorySource := newMemorySource()
	urls := []string{
		thingURL, secretURL, "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "type.googleapis.com/envoy.config.listener.v3.Listener",
		"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "type.googleapis.com/envoy.config.cluster.v3.Cluster",
	}
	want := append(slices.Clone(urls[1:]), urls[0])
	slices.Reverse(want[:5])
	inBubble(t, func(p *place, c *discovery.Config) {
		c.Types = nil
		for _, url := range urls {
			c.Types = append(c.Types, discovery.Type{URL: url, Source: memorySource})
		}
	}, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		c := open(t, conn)
		for _, url := range urls {
			c.ask(url, "late")
		}
		synctest.Wait()
		var shown []string
		for _, typ := range p.server.Status().Streams[0].Types {
			shown = append(shown, typ.Type)
		}
		if !slices.Equal(shown, want) {
			t.Errorf("shown are %q", shown)
		}
		c.hang()
	})
}

func TestChangeLatencyIsMeasured(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		c := open(t, conn)
		c.ask(thingURL, "a")
		c.gets("1")
		synctest.Wait()
		p.source.put("a", "1") // nothing has changed: no push, now or later
		synctest.Wait()
		time.Sleep(time.Minute) // the bubble's
		p.source.put("b", "b")
		c.answer(nil, "a", "b")
		c.gets("b")
		c.answer(nil, "a", "b")
		synctest.Wait()
		if m := p.server.Metrics(); m.Sent.Count != 0 || m.Acked.Count != 0 || m.Pushes[thingURL] != 2 {
			t.Errorf("before a change: %+v", m)
		}
		p.source.put("a", "2")
		c.gets("2")
		time.Sleep(30 * time.Millisecond) // the bubble's
		c.answer(nil, "a", "b")
		synctest.Wait()
		m := p.server.Metrics()
		if m.Sent.Count != 1 || m.Sent.Buckets[0.001] != 1 || m.Acked.Count != 1 || m.Acked.Sum != 30*time.Millisecond || m.Acked.Buckets[0.025] != 0 || m.Acked.Buckets[0.05] != 1 {
			t.Errorf("after it: sent %+v, acked %+v", m.Sent, m.Acked)
		}
		c.hang()
		m.Pushes["x"] = 7
		if p.server.Metrics().Pushes["x"] != 0 {
			t.Error("the counts can be changed from outside")
		}
	})
}

func TestHealthProbesFollowReadiness(t *testing.T) {
	notReady := errors.New("the cluster far is not synced\n")
	inBubble(t, func(_ *place, c *discovery.Config) { c.Ready = func() error { return notReady } }, func(t *testing.T, p *place) {
		conn := p.dialPlaintext()
		defer conn.Close()
		probe := healthv1.NewHealthClient(conn)
		for _, c := range []struct {
			notReady error
			code     int
			text     string
			health   healthv1.HealthCheckResponse_ServingStatus
		}{
			{notReady, 503, `the cluster far is not synced\n` + "\n", healthv1.HealthCheckResponse_NOT_SERVING},
			{nil, 200, "ok\n", healthv1.HealthCheckResponse_SERVING},
		} {
			notReady = c.notReady
			answer := httptest.NewRecorder()
			p.server.Probes().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			if text, _ := io.ReadAll(answer.Body); answer.Code != c.code || string(text) != c.text {
				t.Errorf("/readyz: %d %q", answer.Code, text)
			}
			answer = httptest.NewRecorder()
			p.server.Probes().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
			if answer.Code != 200 {
				t.Errorf("/healthz: %d", answer.Code)
			}
			got, err := probe.Check(t.Context(), &healthv1.HealthCheckRequest{})
			if err != nil || got.GetStatus() != c.health {
				t.Errorf("gRPC: %v, %v", got, err)
			}
		}
		if _, err := probe.Check(t.Context(), &healthv1.HealthCheckRequest{Service: "x"}); status.Code(err) != codes.NotFound {
			t.Errorf("another service: %v", err)
		}
	})
}

func TestStatusNamesTheResourceThatAClientRefuses(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		p.source.put("a", "odd")
		p.source.put("b", "1")
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		c := open(t, conn)
		c.ask(thingURL, "a", "b")
		for refused, accepted := 0, 0; refused < 2 || accepted < 1; { // together with b, then alone
			got, err := c.ads.Recv()
			if err != nil {
				t.Fatal(err)
			}
			c.last = got
			var bad *rpcstatus.Status
			if slices.ContainsFunc(got.GetResources(), func(r *anypb.Any) bool { return strings.Contains(string(r.GetValue()), "odd") }) {
				bad = &rpcstatus.Status{Message: "cannot be loaded"}
				refused++
			} else {
				accepted++
			}
			c.answer(bad, "a", "b")
		}
		synctest.Wait()
		got := p.server.Status().Streams[0].Types[0]
		if got.Rejected != 1 || !got.Refusing() || got.Refused.Text() != "a: cannot be loaded" || p.server.Metrics().Refusing[thingURL] != 1 {
			t.Errorf("the status is %+v, refused %+v", got, got.Refused)
		}
		c.answer(nil, "b")
		synctest.Wait()
		if got := p.server.Status().Streams[0].Types[0]; got.Rejected != 0 || got.Refusing() || p.server.Metrics().Refusing[thingURL] != 0 {
			t.Errorf("once it no longer asks for it, the status is %+v, refused %+v", got, got.Refused)
		}
	})
}
