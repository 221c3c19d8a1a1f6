package agent_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// diary is what happened, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// slow is an authority whose requests take until they are cancelled.
type slow struct {
	asked chan struct{}
	ended func()
}

func (s slow) CSRSign(ctx context.Context, _ ca.SignRequest) (ca.Certificate, error) {
	s.asked <- struct{}{}
	<-ctx.Done()
	s.ended()
	return ca.Certificate{}, ctx.Err()
}

func TestCloseEndsStreamsThenSocketThenRequests(t *testing.T) {
	var seen diary
	cfg := config(t, catest.NewCA(catest.Options{}))
	asked := make(chan struct{}, 1)
	cfg.Authorities = append(cfg.Authorities, secret.Authority{Name: "slow", Client: slow{asked, func() {
		if _, err := os.Lstat(cfg.Socket.Path); errors.Is(err, os.ErrNotExist) {
			seen.note("the socket is gone")
		}
		seen.note("a request was cancelled")
	}}})
	late := cfg.Secrets[0]
	late.Name, late.Authorities = "late", []string{"slow"}
	cfg.Secrets = append(cfg.Secrets, late)
	cfg.Socket.Observe = func(e xds.Event[secret.Caller]) {
		if e.Kind == xds.Closed {
			seen.note("a stream ended")
		}
	}
	a, err := agent.New(cfg)
	must(t, err)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- a.Run(ctx) }()
	stream := openStream(t, cfg.Socket.Path)
	<-asked
	stop()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if want := []string{"a stream ended", "the socket is gone", "a request was cancelled"}; !slices.Equal(seen.lines, want) {
		t.Errorf("what happened: %q, want %q", seen.lines, want)
	}
	if _, err := a.Secrets().Peek(secret.Caller{}, "default"); !errors.Is(err, secret.ErrClosed) {
		t.Errorf("a secret is answered afterwards: %v", err)
	}
}

// newStream opens a stream.
func newStream(t *testing.T, socket string) secretv3.SecretDiscoveryService_StreamSecretsClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := secretv3.NewSecretDiscoveryServiceClient(conn).StreamSecrets(ctx, grpc.WaitForReady(true))
	must(t, err)
	return stream
}

// openStream opens a stream that has got its first answer.
func openStream(t *testing.T, socket string) secretv3.SecretDiscoveryService_StreamSecretsClient {
	t.Helper()
	stream := newStream(t, socket)
	must(t, stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: []string{"default"}}))
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// observed is an agent whose hook collects whose certificates it rotated in.
func observed(t *testing.T) (cfg agent.Config, events func() []secret.Event) {
	t.Helper()
	var mu sync.Mutex
	var all []secret.Event
	cfg = config(t, catest.NewCA(catest.Options{}))
	cfg.Observe = func(e secret.Event) { mu.Lock(); all = append(all, e); mu.Unlock() }
	return cfg, func() []secret.Event { mu.Lock(); defer mu.Unlock(); return slices.Clone(all) }
}

func TestTwoAgentsInOneProcessAreIndependent(t *testing.T) {
	firstConfig, firstEvents := observed(t)
	secondConfig, secondEvents := observed(t)
	first, second := run(t, firstConfig), run(t, secondConfig)
	one := fetch(t, firstConfig.Socket.Path, "ROOTCA").Resources[0].Value
	two := fetch(t, secondConfig.Socket.Path, "ROOTCA").Resources[0].Value
	if slices.Equal(one, two) {
		t.Error("both serve the same roots")
	}
	fetch(t, firstConfig.Socket.Path, "default")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	quiet := len(firstEvents())
	if got := fetch(t, secondConfig.Socket.Path, "default"); len(got.Resources) != 1 {
		t.Error("the second does not serve any more")
	}
	if first.Streams() != 0 || len(second.Ready()) != 0 {
		t.Errorf("%d streams on the first, the second misses %q", first.Streams(), second.Ready())
	}
	if len(firstEvents()) != quiet {
		t.Error("a hook of the first was called after Close")
	}
	if err := second.Close(); err != nil { // a rotation is reported after it is served
		t.Error(err)
	}
	for name, events := range map[string][]secret.Event{"first": firstEvents(), "second": secondEvents()} {
		if n := rotations(events); n != 1 {
			t.Errorf("%d rotations were notified to the %s, want 1", n, name)
		}
	}
}

func rotations(events []secret.Event) (n int) {
	for _, e := range events {
		if e.Kind == secret.Rotated {
			n++
		}
	}
	return n
}
