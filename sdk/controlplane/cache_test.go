package controlplane_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/controlplane"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func ask(names ...string) *cachev3.Request {
	return &discoveryv3.DiscoveryRequest{TypeUrl: controlplane.TypeURL, ResourceNames: names, Node: &corev3.Node{Id: "test"}}
}

func subscription(names ...string) cachev3.Subscription {
	return streamv3.NewSotwSubscription(names, true)
}

func TestCreateWatchAndCancelDoNotBlockOnChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := secrettest.New(leaf("default", "1"))
		out := make(chan cachev3.Response) // never read
		cancel, err := newCache(t, source).CreateWatch(ask("default"), subscription("default"), out)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		cancel()
		if n := source.Watchers(); n != 0 {
			t.Errorf("%d watchers are left when cancel has returned", n)
		}
		close(out) // a send panics now
		source.Put(leaf("default", "2"))
		synctest.Wait()
	})
}

func TestCreateWatchSendsHeldSecretsBeforeReturning(t *testing.T) {
	out := make(chan cachev3.Response, 1)
	cancel, err := newCache(t, secrettest.New(leaf("default", "1"))).CreateWatch(ask("default"), subscription("default"), out)
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	if len(out) != 1 {
		t.Error("nothing is there")
	}
}

// The channel of a stream is shared by its types, and each has its room in it.
func TestOnlyOneResponseIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := secrettest.New(leaf("default", "1"))
		out := make(chan cachev3.Response, 8)
		cancel, err := newCache(t, source).CreateWatch(ask("default"), subscription("default"), out)
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		for _, version := range []string{"2", "3", "4"} {
			source.Put(leaf("default", version))
			synctest.Wait()
		}
		if len(out) != 1 {
			t.Fatalf("%d responses are on their way", len(out))
		}
		first := <-out
		if _, err := first.GetDiscoveryResponse(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if next := <-out; next.GetResponseVersion() != "4" {
			t.Errorf("then came version %q", next.GetResponseVersion())
		}
	})
}

func TestBadRequestsAreRefusedWithStatus(t *testing.T) {
	many := make([]string, 10_001)
	for i := range many {
		many[i] = strings.Repeat("n", i%100) + string(rune('a'+i%26)) + time.Duration(i).String()
	}
	closed := secrettest.New()
	closed.Fail(secret.ErrClosed)
	for name, test := range map[string]struct {
		source secret.Source
		req    *cachev3.Request
		code   codes.Code
		text   string
	}{
		"another type":   {secrettest.New(), &discoveryv3.DiscoveryRequest{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"}, codes.InvalidArgument, "only type.googleapis.com/envoy.extensions"},
		"too many names": {secrettest.New(), ask(many...), codes.ResourceExhausted, "10000 are allowed"},
		"no such node":   {secrettest.New(), &discoveryv3.DiscoveryRequest{TypeUrl: controlplane.TypeURL}, codes.PermissionDenied, "who are you"},
		"closed source":  {closed, ask("default"), codes.Unavailable, "closed"},
	} {
		c, err := controlplane.New(controlplane.Config{Secrets: test.source, Caller: named})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.CreateWatch(test.req, subscription(test.req.GetResourceNames()...), nil)
		_, fetch := c.Fetch(t.Context(), test.req)
		delta := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: test.req.GetTypeUrl(), Node: test.req.GetNode()}
		_, second := c.CreateDeltaWatch(delta, subscription(test.req.GetResourceNames()...), nil)
		for _, err := range []error{err, fetch, second} {
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
}

func named(node *corev3.Node) (secret.Caller, error) {
	if node.GetId() == "" {
		return secret.Caller{}, status.Error(codes.PermissionDenied, "who are you?")
	}
	return secret.Caller{ID: node.GetId()}, nil
}

func TestMissingConfigurationIsNamed(t *testing.T) {
	for want, cfg := range map[string]controlplane.Config{
		"Config.Secrets": {Caller: named},
		"Config.Caller":  {Secrets: secrettest.New()},
	} {
		if _, err := controlplane.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestFetchWaitsAndLeavesOutRefusedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := secrettest.New(leaf("default", "1"))
		source.Empty("slow")
		cache := newCache(t, source)
		time.AfterFunc(time.Minute, func() { source.Put(leaf("slow", "1")) })
		begun := time.Now()
		r, err := cache.Fetch(t.Context(), ask("slow", "default", "unknown", strings.Repeat("x", 9000)))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := r.GetDiscoveryResponse(); err != nil || len(out.Resources) != 2 || time.Since(begun) != time.Minute {
			t.Errorf("%d secrets after %s, %v", len(out.Resources), time.Since(begun), err)
		}
		if r.GetContext() != t.Context() {
			t.Error("it has another context")
		}
	})
}

func TestEmptyFetchReturnsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := secrettest.New()
		source.Empty("slow")
		cache := newCache(t, source)
		if _, err := cache.Fetch(t.Context(), ask("unknown")); status.Code(err) != codes.NotFound {
			t.Errorf("unknown: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := cache.Fetch(ctx, ask("slow")); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("slow: %v", err)
		}
		time.AfterFunc(time.Minute, func() { source.Fail(secret.ErrClosed) })
		if _, err := cache.Fetch(t.Context(), ask("slow")); status.Code(err) != codes.Unavailable {
			t.Errorf("closed: %v", err)
		}
	})
}

func TestOversizedFetchIsRefused(t *testing.T) {
	source := secrettest.New()
	for _, name := range []string{"a", "b", "c"} {
		item := leaf(name, "1")
		item.Chain = make([]byte, 1<<20)
		source.Put(item)
	}
	if _, err := newCache(t, source).Fetch(t.Context(), ask("a", "b", "c")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}

func TestEachRefusedNameIsReportedOncePerStream(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		var mu sync.Mutex
		var refused []string
		source := secrettest.New(leaf("default", "1"))
		cache, err := controlplane.New(controlplane.Config{Secrets: source, Caller: named, Refused: func(caller secret.Caller, name string) {
			mu.Lock()
			defer mu.Unlock()
			refused = append(refused, caller.ID+" "+name)
		}})
		if err != nil {
			t.Fatal(err)
		}
		c := open(t, d, cache)
		defer c.close()
		c.ask("default", "unknown")
		for _, version := range []string{"2", "3"} {
			c.get("default")
			c.ack()
			source.Put(leaf("default", version))
		}
		c.get("default")
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(refused, []string{"test unknown"}) {
			t.Errorf("notified were %q", refused)
		}
	})
}
