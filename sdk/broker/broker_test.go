package broker_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	api "github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/countersign-dev/countersign/internal/test/polling"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/broker"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/identities"
)

func TestBrokerGetsSecretsOfWorkload(t *testing.T) {
	e := start(t, nil)
	web := e.workloads.start(11, domain+"web")
	client := e.dial(e.ca, proxy)
	stream := e.subscribe(client, pid(t, 11))
	if got := svid(t, stream); got.GetSpiffeId() != domain+"web" || !bytes.Equal(got.GetBundle(), e.ca.Bundle().Certificates()[0].Raw) {
		t.Errorf("got %s", got.GetSpiffeId())
	}
	bundles, err := client.SubscribeToX509Bundles(e.ctx(), &api.SubscribeToX509BundlesRequest{Reference: pid(t, 11)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := bundles.Recv(); err != nil || len(got.GetBundles()["spiffe://example.org"]) == 0 {
		t.Errorf("bundles: %v, %v", got, err)
	}
	keys, err := client.SubscribeToJWTBundles(e.ctx(), &api.SubscribeToJWTBundlesRequest{Reference: pid(t, 11)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := keys.Recv(); err != nil || string(got.GetBundles()["spiffe://example.org"]) != `{"keys":[]}` {
		t.Errorf("keys: %v, %v", got, err)
	}
	if e.server.Streams() != 3 || e.workloads.held(web) != 3 || e.count(broker.Granted) != 3 {
		t.Errorf("%d streams, %d holds, %d granted", e.server.Streams(), e.workloads.held(web), e.count(broker.Granted))
	}
	if text := e.log.String(); strings.Count(text, "a broker gets the secrets of a workload") != 3 || !strings.Contains(text, proxy) {
		t.Error(text)
	}
}

func TestStreamEndsWithItsWorkloadAlone(t *testing.T) {
	e := start(t, nil)
	web, db := e.workloads.start(11, domain+"web"), e.workloads.start(12, domain+"db")
	client := e.dial(e.ca, proxy)
	first, second := e.subscribe(client, pid(t, 11)), e.subscribe(client, pid(t, 12))
	svid(t, first)
	svid(t, second)
	e.workloads.end(11)
	refused(t, receive(first), codes.NotFound, broker.WorkloadNotFound)
	polling.Until(t, patience, "the ended workload is still held", func() bool { return e.workloads.held(web) == 0 })
	e.workloads.start(11, domain+"other") // the PID is used again
	if got := svid(t, e.subscribe(client, pid(t, 11))); got.GetSpiffeId() != domain+"other" {
		t.Errorf("got %s", got.GetSpiffeId())
	}
	e.ca.Rotate()
	if got := svid(t, second); got.GetSpiffeId() != domain+"db" {
		t.Errorf("got %s", got.GetSpiffeId())
	}
	if e.workloads.held(db) != 1 || e.count(broker.Ended) != 1 {
		t.Errorf("%d holds, %d ended", e.workloads.held(db), e.count(broker.Ended))
	}
}

func TestWorkloadThatHasChangedGetsNothingMore(t *testing.T) {
	e := start(t, nil)
	web := e.workloads.start(11, domain+"web")
	stream := e.subscribe(e.dial(e.ca, proxy), pid(t, 11))
	svid(t, stream)
	e.workloads.mu.Lock()
	web.refused = broker.Refuse(broker.WorkloadNotEntitled, "another program")
	e.workloads.mu.Unlock()
	e.ca.Rotate()
	refused(t, receive(stream), codes.PermissionDenied, broker.WorkloadNotEntitled)
}

func TestBrokersOfOneIdentityShareItsCertificate(t *testing.T) {
	second := domain + "second"
	e := start(t, func(cfg *broker.Config, _ *identities.Config) {
		cfg.Brokers = append(cfg.Brokers, broker.Broker{SPIFFEID: second, References: []broker.Reference{broker.PID}})
	})
	e.workloads.start(11, domain+"web")
	e.workloads.start(12, domain+"web")
	one, other := svid(t, e.subscribe(e.dial(e.ca, proxy), pid(t, 11))), svid(t, e.subscribe(e.dial(e.ca, second), pid(t, 12)))
	if !bytes.Equal(one.GetX509Svid(), other.GetX509Svid()) {
		t.Error("the brokers got two certificates of one identity")
	}
}

func TestOnlyListedBrokersConnect(t *testing.T) {
	e := start(t, nil)
	e.workloads.start(11, domain+"web")
	for name, client := range map[string]api.APIClient{
		"not on the list": e.dial(e.ca, domain+"other"), "of another CA": e.dial(catest.NewCA(catest.Options{}), proxy), "the agent itself": e.dial(e.ca, own),
	} {
		if _, err := client.FetchJWTSVID(e.ctx(), &api.FetchJWTSVIDRequest{Reference: pid(t, 11), Audience: []string{"a"}}); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	if e.workloads.asked != 0 {
		t.Errorf("%d references were resolved", e.workloads.asked)
	}
}

func TestCallWithoutHeaderIsRefused(t *testing.T) {
	e := start(t, nil)
	e.workloads.start(11, domain+"web")
	client := e.dial(e.ca, proxy)
	for _, header := range [][]string{{}, {"broker.spiffe.io", "false"}, {"workload.spiffe.io", "true"}, {"broker.spiffe.io", "true", "broker.spiffe.io", "true"}} {
		stream, err := client.SubscribeToX509SVID(e.with(header...), &api.SubscribeToX509SVIDRequest{Reference: pid(t, 11)})
		if err != nil {
			t.Fatal(err)
		}
		refused(t, receive(stream), codes.InvalidArgument, "")
		_, err = client.FetchJWTSVID(e.with(header...), &api.FetchJWTSVIDRequest{Reference: pid(t, 11)})
		refused(t, err, codes.InvalidArgument, "")
	}
	if e.workloads.asked != 0 || e.count(broker.Invalid) != 8 {
		t.Errorf("%d references were resolved, %d calls invalid", e.workloads.asked, e.count(broker.Invalid))
	}
}

func TestReferencesAreRefusedForTheStandardsReasons(t *testing.T) {
	e := start(t, func(cfg *broker.Config, _ *identities.Config) {
		cfg.Resolvers[broker.Kubernetes] = cfg.Resolvers[broker.PID]
	})
	e.workloads.start(11, "")
	e.workloads.start(12, own)
	client := e.dial(e.ca, proxy)
	garbled := pid(t, 11)
	garbled.Reference.Value = []byte{0xff}
	for name, want := range map[string]struct {
		reference *api.WorkloadReference
		code      codes.Code
		reason    broker.Reason
	}{
		"none":             {nil, codes.InvalidArgument, broker.ReferenceInvalid},
		"empty":            {&api.WorkloadReference{Reference: &anypb.Any{}}, codes.InvalidArgument, broker.ReferenceInvalid},
		"garbled":          {garbled, codes.InvalidArgument, broker.ReferenceInvalid},
		"unknown type":     {pack(t, wrapperspb.String("web")), codes.InvalidArgument, broker.ReferenceInvalid},
		"type not allowed": {pack(t, &api.KubernetesObjectReference{}), codes.PermissionDenied, broker.WorkloadNotEntitled},
		"no such process":  {pid(t, 1), codes.NotFound, broker.WorkloadNotFound},
		"unreadable":       {pid(t, 11), codes.Unavailable, ""},
		"the agent":        {pid(t, 12), codes.PermissionDenied, broker.WorkloadNotEntitled},
	} {
		t.Run(name, func(t *testing.T) {
			err := receive(e.subscribe(client, want.reference))
			refused(t, err, want.code, want.reason)
			if strings.Contains(err.Error(), "/proc") {
				t.Errorf("the broker gets what is the operator's: %v", err)
			}
		})
	}
	polling.Until(t, patience, "streams stay open", func() bool { return e.server.Streams() == 0 })
}

// The certificate of another broker would give a broker what that one may use.
func TestBrokerDoesNotGetTheRightsOfAnother(t *testing.T) {
	second, both := domain+"second", []broker.Reference{broker.PID, broker.Kubernetes}
	e := start(t, func(cfg *broker.Config, _ *identities.Config) {
		cfg.Resolvers[broker.Kubernetes] = named{domain + "pod"}
		cfg.Brokers = append(cfg.Brokers, broker.Broker{SPIFFEID: second, References: both})
	})
	e.workloads.start(11, second)
	e.workloads.start(12, proxy)
	one, other := e.dial(e.ca, proxy), e.dial(e.ca, second)
	refused(t, receive(e.subscribe(one, pid(t, 11))), codes.PermissionDenied, broker.WorkloadNotEntitled)
	svid(t, e.subscribe(other, pid(t, 11))) // itself
	svid(t, e.subscribe(other, pid(t, 12))) // a broker with fewer rights
	stream := e.subscribe(one, pid(t, 12))
	svid(t, stream)
	if err := e.server.SetBrokers([]broker.Broker{{SPIFFEID: proxy, References: both[:1]}, {SPIFFEID: second, References: both[:1]}}); err != nil {
		t.Fatal(err)
	}
	ends := e.subscribe(one, pid(t, 11))
	svid(t, ends)
	if err := e.server.SetBrokers([]broker.Broker{{SPIFFEID: proxy, References: both[:1]}, {SPIFFEID: second, References: both}}); err != nil {
		t.Fatal(err)
	}
	e.ca.Rotate()
	refused(t, receive(ends), codes.PermissionDenied, broker.WorkloadNotEntitled)
	svid(t, stream)
}

func TestScanOfPIDsIsStopped(t *testing.T) {
	e := start(t, nil)
	e.workloads.start(10_000, domain+"web")
	client := e.dial(e.ca, proxy)
	next := int32(0)
	scan := func(most int32) {
		for last := next + most; next < last; {
			next++
			if status.Code(receive(e.subscribe(client, pid(t, next)))) == codes.ResourceExhausted {
				return
			}
		}
	}
	scan(300)
	if asked := e.workloads.asked; asked < 100 || asked > 299 {
		t.Errorf("%d PIDs were looked up", asked)
	}
	for try := 0; ; try++ {
		// What is known to be refused costs no more, and tells nothing new.
		refused(t, receive(e.subscribe(client, pid(t, 1))), codes.NotFound, broker.WorkloadNotFound)
		err := receive(e.subscribe(client, pid(t, 10_000)))
		if err != nil || try == 50 {
			refused(t, err, codes.ResourceExhausted, "")
			return
		}
		scan(100) // the next reference of each second was that one's
	}
}

// Whose process was refused is known: it uses up nothing that others need.
func TestRefusedProcessesLeaveOthersTheirTurn(t *testing.T) {
	e := start(t, nil)
	client := e.dial(e.ca, proxy)
	for n := range int32(300) {
		e.workloads.start(n+1, own)
		refused(t, receive(e.subscribe(client, pid(t, n+1))), codes.PermissionDenied, broker.WorkloadNotEntitled)
	}
	e.workloads.start(10_000, domain+"web")
	svid(t, e.subscribe(client, pid(t, 10_000)))
}

// References that take long to resolve do not get around the limit of refusals.
func TestFewReferencesAreResolvedAtOnce(t *testing.T) {
	blocked := make(chan struct{})
	slow := &slowly{until: blocked}
	e := start(t, func(cfg *broker.Config, _ *identities.Config) { cfg.Resolvers[broker.PID] = slow })
	client := e.dial(e.ca, proxy)
	began := time.Now()
	var streams []svids
	for n := range int32(400) {
		streams = append(streams, e.subscribe(client, pid(t, n+1)))
	}
	polling.Until(t, patience, "no reference is resolved", func() bool { return slow.asked.Load() == 64 })
	close(blocked)
	limited := 0
	for _, stream := range streams {
		if status.Code(receive(stream)) == codes.ResourceExhausted {
			limited++
		}
	}
	most := 128 + 64 + int(time.Since(began)/time.Second) // each second has one more
	if asked := int(slow.asked.Load()); asked > most || asked+limited != len(streams) {
		t.Errorf("%d references were resolved, %d were not", asked, limited)
	}
}

// A broker that asks again and again for pods that are gone still gets those that run.
func TestReferencesThatMissAgainLeaveOthersTheirTurn(t *testing.T) {
	again := &missesSlowly{asked: map[string]int{}, left: make(chan struct{})}
	e := start(t, func(cfg *broker.Config, _ *identities.Config) {
		again.Resolver = cfg.Resolvers[broker.PID]
		cfg.Resolvers[broker.PID] = again
	})
	defer close(again.left)
	e.workloads.start(10_000, domain+"web")
	client := e.dial(e.ca, proxy)
	for n := range int32(100) {
		refused(t, receive(e.subscribe(client, pid(t, n+1))), codes.NotFound, broker.WorkloadNotFound)
	}
	for n := range int32(100) {
		e.subscribe(client, pid(t, n+1))
	}
	polling.Until(t, patience, "those that missed wait for their turn", func() bool { return again.waiting.Load() == 100 })
	svid(t, e.subscribe(client, pid(t, 10_000)))
}

// missesSlowly refuses references that it has seen once a channel is closed.
type missesSlowly struct {
	broker.Resolver
	mu      sync.Mutex
	asked   map[string]int
	waiting atomic.Int64
	left    chan struct{}
}

func (m *missesSlowly) Resolve(ctx context.Context, reference *anypb.Any, ended func(error)) (broker.Workload, error) {
	if m.seen(reference) {
		m.waiting.Add(1)
		<-m.left
	}
	return m.Resolver.Resolve(ctx, reference, ended)
}

func (m *missesSlowly) seen(reference *anypb.Any) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := string(reference.GetValue())
	m.asked[key]++
	return m.asked[key] > 1
}

// slowly refuses references once a channel is closed.
type slowly struct {
	until chan struct{}
	asked atomic.Int64
}

func (s *slowly) Resolve(context.Context, *anypb.Any, func(error)) (broker.Workload, error) {
	s.asked.Add(1)
	<-s.until
	return broker.Workload{}, broker.Refuse(broker.WorkloadNotFound, "no such process")
}

func TestStreamsOfOneWorkloadAreLimited(t *testing.T) {
	e := start(t, nil)
	e.workloads.start(11, domain+"web")
	e.workloads.start(12, domain+"db")
	client := e.dial(e.ca, proxy)
	for range 32 {
		svid(t, e.subscribe(client, pid(t, 11)))
	}
	refused(t, receive(e.subscribe(client, pid(t, 11))), codes.ResourceExhausted, "")
	svid(t, e.subscribe(client, pid(t, 12)))
}

func TestLimitOfIdentitiesIsNamed(t *testing.T) {
	e := start(t, func(_ *broker.Config, many *identities.Config) { many.Limits.Identities = 2 }) // with the agent's own
	e.workloads.start(11, domain+"web")
	e.workloads.start(12, domain+"db")
	client := e.dial(e.ca, proxy)
	svid(t, e.subscribe(client, pid(t, 11)))
	err := receive(e.subscribe(client, pid(t, 12)))
	refused(t, err, codes.ResourceExhausted, "")
	if !strings.Contains(err.Error(), "limit of identities") {
		t.Error(err)
	}
}

func TestChangedBrokersEndWhatTheyMayNoLongerUse(t *testing.T) {
	second, third := domain+"second", domain+"third"
	both := []broker.Reference{broker.PID, broker.Kubernetes}
	e := start(t, func(cfg *broker.Config, _ *identities.Config) {
		cfg.Resolvers[broker.Kubernetes] = named{domain + "pod"}
		cfg.Brokers = []broker.Broker{{SPIFFEID: proxy, References: both}, {SPIFFEID: second, References: both[:1]}}
	})
	e.workloads.start(11, domain+"web")
	one, other := e.dial(e.ca, proxy), e.dial(e.ca, second)
	stays, pod, ends := e.subscribe(one, pid(t, 11)), e.subscribe(one, pack(t, &api.KubernetesObjectReference{})), e.subscribe(other, pid(t, 11))
	for _, stream := range []svids{stays, pod, ends} {
		svid(t, stream)
	}
	list := func(brokers ...broker.Broker) error { return e.server.SetBrokers(brokers) }
	only := broker.Broker{SPIFFEID: proxy, References: both[:1]}
	for _, wrong := range [][]broker.Broker{nil, {only, only}, {only, {SPIFFEID: third, References: []broker.Reference{"other"}}}} {
		if err := list(wrong...); err == nil {
			t.Errorf("%v are taken", wrong)
		}
	}
	if n := e.server.Streams(); n != 3 {
		t.Errorf("%d streams after wrong lists", n)
	}
	if err := list(only, broker.Broker{SPIFFEID: third, References: both}); err != nil {
		t.Fatal(err)
	}
	refused(t, receive(pod), codes.PermissionDenied, broker.WorkloadNotEntitled)
	refused(t, receive(ends), codes.PermissionDenied, "")
	refused(t, receive(e.subscribe(one, pack(t, &api.KubernetesObjectReference{}))), codes.PermissionDenied, broker.WorkloadNotEntitled)
	refused(t, receive(e.subscribe(other, pid(t, 11))), codes.PermissionDenied, "")
	if _, err := e.dial(e.ca, second).FetchJWTSVID(e.ctx(), &api.FetchJWTSVIDRequest{Reference: pid(t, 11)}); status.Code(err) != codes.Unavailable {
		t.Errorf("the handshake of a broker that was removed: %v", err)
	}
	svid(t, e.subscribe(e.dial(e.ca, third), pid(t, 11)))
	e.ca.Rotate()
	svid(t, stays)
}

// named resolves each reference to one identity.
type named struct{ id string }

func (n named) Resolve(context.Context, *anypb.Any, func(error)) (broker.Workload, error) {
	return broker.Workload{SPIFFEID: n.id, Name: n.id, Check: func() error { return nil }, Release: func() {}}, nil
}

func TestServerEndsItsStreams(t *testing.T) {
	e := start(t, nil)
	web := e.workloads.start(11, domain+"web")
	stream := e.subscribe(e.dial(e.ca, proxy), pid(t, 11))
	svid(t, stream)
	if err := e.server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := receive(stream); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if held := e.workloads.held(web); held != 0 {
		t.Errorf("%d holds are left", held)
	}
}

func TestBrokerIsServedAtLoopbackAddress(t *testing.T) {
	e := start(t, func(cfg *broker.Config, _ *identities.Config) { cfg.Path, cfg.Address = "", proctest.FreeAddress(t) })
	e.workloads.start(11, domain+"web")
	svid(t, e.subscribe(e.dial(e.ca, proxy), pid(t, 11)))
}

func TestHealthAndReflectionNeedABrokersCertificate(t *testing.T) {
	e := start(t, nil)
	conn := e.connect(e.ca, proxy)
	if got, err := healthv1.NewHealthClient(conn).Check(e.with(), &healthv1.HealthCheckRequest{}); err != nil || got.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", got, err)
	}
	reflect, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(e.with())
	if err != nil {
		t.Fatal(err)
	}
	ask := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "spiffe.broker.API"}}
	if err := reflect.Send(ask); err != nil {
		t.Fatal(err)
	}
	if got, err := reflect.Recv(); err != nil || got.GetFileDescriptorResponse() == nil {
		t.Errorf("reflection: %v, %v", got, err)
	}
	if _, err := healthv1.NewHealthClient(e.connect(e.ca, domain+"other")).Check(e.with(), &healthv1.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a stranger's check: %v", err)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	for want, change := range map[string]func(*broker.Config){
		"Path or Address":        func(c *broker.Config) { c.Path = "" },
		`"10.0.0.1:1"`:           func(c *broker.Config) { c.Path, c.Address = "", "10.0.0.1:1" },
		`"localhost:1"`:          func(c *broker.Config) { c.Path, c.Address = "", "localhost:1" },
		`":1"`:                   func(c *broker.Config) { c.Path, c.Address = "", ":1" },
		`"[::]:1"`:               func(c *broker.Config) { c.Path, c.Address = "", "[::]:1" },
		"Brokers is empty":       func(c *broker.Config) { c.Brokers = nil },
		"has no References":      func(c *broker.Config) { c.Brokers[0].References = nil },
		"twice":                  func(c *broker.Config) { c.Brokers = append(c.Brokers, c.Brokers[0]) },
		"Resolvers has none for": func(c *broker.Config) { c.Brokers[0].References = []broker.Reference{broker.Kubernetes} },
		"needs Sessions":         func(c *broker.Config) { c.Sessions = nil },
		"SPIFFE ID":              func(c *broker.Config) { c.Brokers[0].SPIFFEID = "web" },
	} {
		cfg := broker.Config{
			Path: "x", Own: own, Sessions: &identities.Set{}, Secrets: &identities.Set{}, Resolvers: map[broker.Reference]broker.Resolver{broker.PID: broker.Processes{}},
			Brokers: []broker.Broker{{SPIFFEID: proxy, References: []broker.Reference{broker.PID}}},
		}
		change(&cfg)
		if _, err := broker.Listen(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
