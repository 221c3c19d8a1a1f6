package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

func config(t *testing.T, authority *catest.CA) agent.Config {
	t.Helper()
	dir := proctest.Folder(t)
	id, err := pki.NewIdentity("spiffe://example.org/web", nil, nil)
	must(t, err)
	return agent.Config{
		Authorities: []secret.Authority{{Name: "test", Client: authority}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, TTL: time.Hour, Authorities: []string{"test"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
		},
		Socket: sds.Config{Path: filepath.Join(dir, "socket")},
	}
}

func TestAgentServesUntilContextEnds(t *testing.T) {
	cfg := config(t, catest.NewCA(catest.Options{}))
	a, err := agent.New(cfg)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()

	answer := fetch(t, cfg.Socket.Path, "default", "ROOTCA")
	if len(answer.Resources) != 2 {
		t.Errorf("got %d secrets", len(answer.Resources))
	}
	if missing := a.Ready(); len(missing) != 0 {
		t.Errorf("not ready: %v", missing)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := os.Lstat(cfg.Socket.Path); err == nil {
		t.Error("the socket is still there")
	}
	if err := a.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

func TestAgentWithoutSocketAsksNoAuthority(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	first, err := agent.New(config(t, catest.NewCA(catest.Options{})))
	must(t, err)
	defer first.Close()
	cfg := config(t, authority)
	must(t, os.WriteFile(cfg.Socket.Path, nil, 0o600))
	if err := agent.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("got %v", err)
	}
	if n := len(authority.Requests()); n != 0 {
		t.Errorf("the authority was asked %d times", n)
	}
}

func TestWrongConfigurationLeavesNoSocket(t *testing.T) {
	cfg := config(t, catest.NewCA(catest.Options{}))
	cfg.Secrets[0].Authorities = []string{"nobody"}
	if _, err := agent.New(cfg); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(cfg.Socket.Path); err == nil {
		t.Error("a socket was left")
	}
}

func fetch(t *testing.T, socket string, names ...string) *discoveryv3.DiscoveryResponse {
	t.Helper()
	answer, err := tryFetch(t, socket, names...)
	must(t, err)
	return answer
}

func tryFetch(t *testing.T, socket string, names ...string) (*discoveryv3.DiscoveryResponse, error) {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return secretv3.NewSecretDiscoveryServiceClient(conn).FetchSecrets(ctx,
		&discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: names}, grpc.WaitForReady(true))
}

func TestStreamGetsNameAddedByReload(t *testing.T) {
	cfg := config(t, catest.NewCA(catest.Options{}))
	a := run(t, cfg)
	conn, err := grpc.NewClient("unix:"+cfg.Socket.Path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	within, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := secretv3.NewSecretDiscoveryServiceClient(conn).StreamSecrets(within)
	must(t, err)
	must(t, stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: []string{"default", "more"}}))
	if answer, err := stream.Recv(); err != nil || len(answer.Resources) != 1 {
		t.Fatalf("got %v, %v; want default", answer, err)
	}
	more := cfg.Secrets[0]
	more.Name = "more"
	must(t, a.Reload(append(cfg.Secrets, more), cfg.Authorities))
	answer, err := stream.Recv()
	if err != nil || len(answer.Resources) != 1 {
		t.Fatalf("got %v, %v; want more", answer, err)
	}
	if secret := string(answer.Resources[0].Value); !strings.Contains(secret, "more") {
		t.Error("it is not more")
	}
}

func TestWorkloadAPISharesPolicyWithSDS(t *testing.T) {
	cfg := config(t, catest.NewCA(catest.Options{}))
	cfg.WorkloadAPI.Path = filepath.Join(filepath.Dir(cfg.Socket.Path), "spiffe")
	var asked atomic.Int64
	cfg.Socket.Policy.Refuse = func(sds.Peer) error { asked.Add(1); return nil }
	a := run(t, cfg)
	fetch(t, cfg.Socket.Path, "default")
	before := asked.Load()
	stream := fetchSVID(t, cfg.WorkloadAPI.Path)
	answer := &workloadv1.X509SVIDResponse{}
	if err := stream.RecvMsg(answer); err != nil || len(answer.Svids) != 1 || answer.Svids[0].SpiffeId != "spiffe://example.org/web" {
		t.Fatalf("got %v, %v", len(answer.Svids), err)
	}
	if n := a.Streams(); n != 1 || asked.Load() == before {
		t.Errorf("%d streams; the policy was asked: %v", n, asked.Load() != before)
	}
	if n := a.SetPolicy(sds.Policy{Refuse: func(sds.Peer) error { return errors.New("not today") }}); n != 1 {
		t.Errorf("%d streams were ended", n)
	}
	if err := stream.RecvMsg(answer); status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v", err)
	}
}

func fetchSVID(t *testing.T, socket string) grpc.ClientStream {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "workload.spiffe.io", "true"), patience)
	t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/SpiffeWorkloadAPI/FetchX509SVID")
	must(t, err)
	must(t, errors.Join(stream.SendMsg(&workloadv1.X509SVIDRequest{}), stream.CloseSend()))
	return stream
}

func TestForeignWorkloadAPISocketLeavesNothing(t *testing.T) {
	cfg := config(t, catest.NewCA(catest.Options{}))
	cfg.WorkloadAPI.Path = cfg.Socket.Path + ".file"
	must(t, os.WriteFile(cfg.WorkloadAPI.Path, nil, 0o600))
	if _, err := agent.New(cfg); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(cfg.Socket.Path); err == nil {
		t.Error("the socket of SDS was left")
	}
}

var must = fatal.If
