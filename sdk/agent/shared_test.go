package agent_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/sds"
)

const svidMethod = "/SpiffeWorkloadAPI/FetchX509SVID"

// startShared serves SDS and the Workload API on one socket.
func startShared(t *testing.T) (*agent.Agent, *grpc.ClientConn) {
	t.Helper()
	cfg := config(t, catest.NewCA(catest.Options{}))
	cfg.WorkloadAPI.Path = cfg.Socket.Path
	a := run(t, cfg)
	conn, err := grpc.NewClient("unix:"+cfg.Socket.Path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	if got := fetch(t, cfg.Socket.Path, "default", "ROOTCA"); len(got.GetResources()) != 2 {
		t.Errorf("over SDS came %d secrets", len(got.GetResources()))
	}
	return a, conn
}

// deadline bounds a call that should be answered.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func openSVIDs(ctx context.Context, t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, svidMethod)
	must(t, errors.Join(err, stream.SendMsg(&workloadv1.X509SVIDRequest{}), stream.CloseSend()))
	return stream
}

func TestSDSAndWorkloadAPIShareASocket(t *testing.T) {
	a, conn := startShared(t)
	refused := openSVIDs(deadline(t), t, conn)
	if err := refused.RecvMsg(&workloadv1.X509SVIDResponse{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("without the security header the stream ends with %v", err)
	}
	stream := openSVIDs(metadata.AppendToOutgoingContext(deadline(t), "workload.spiffe.io", "true"), t, conn)
	var got workloadv1.X509SVIDResponse
	if err := stream.RecvMsg(&got); err != nil || got.GetSvids()[0].GetSpiffeId() != "spiffe://example.org/web" {
		t.Errorf("got %v, %v", got.GetSvids(), err)
	}
	if n := a.Streams(); n != 1 {
		t.Errorf("%d streams are counted", n)
	}
	if n := a.SetPolicy(sds.Policy{Refuse: func(sds.Peer) error { return errors.New("not today") }}); n != 1 {
		t.Errorf("the policy ended %d streams", n)
	}
	if err := stream.RecvMsg(&got); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream ended with %v", err)
	}
	if _, err := healthv1.NewHealthClient(conn).Check(deadline(t), &healthv1.HealthCheckRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("health answers a peer that is not admitted: %v", err)
	}
}

func TestSharedSocketEndsStreamsOfBoth(t *testing.T) {
	a, conn := startShared(t)
	stream := openSVIDs(metadata.AppendToOutgoingContext(deadline(t), "workload.spiffe.io", "true"), t, conn)
	var got workloadv1.X509SVIDResponse
	must(t, errors.Join(stream.RecvMsg(&got), a.Close()))
	if err := stream.RecvMsg(&got); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestSocketAnswersHealthAndReflection(t *testing.T) {
	_, conn := startShared(t)
	if got, err := healthv1.NewHealthClient(conn).Check(deadline(t), &healthv1.HealthCheckRequest{}); err != nil || got.GetStatus() == healthv1.HealthCheckResponse_UNKNOWN {
		t.Errorf("health: %v, %v", got, err)
	}
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(deadline(t))
	must(t, err)
	ask := func(request *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
		must(t, stream.Send(request))
		answer, err := stream.Recv()
		must(t, err)
		return answer
	}
	var names []string
	for _, service := range ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
	}
	want := []string{"SpiffeWorkloadAPI", "envoy.service.discovery.v3.AggregatedDiscoveryService", "envoy.service.secret.v3.SecretDiscoveryService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"}
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("there are %v", names)
	}
	for _, name := range want {
		described := ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}})
		files := described.GetFileDescriptorResponse().GetFileDescriptorProto()
		if len(files) == 0 {
			t.Errorf("%s is not described: %v", name, described.GetErrorResponse())
			continue
		}
		var file descriptorpb.FileDescriptorProto
		if err := proto.Unmarshal(files[0], &file); err != nil || name == "SpiffeWorkloadAPI" && file.GetPackage() != "" {
			t.Errorf("%s is in package %q: %v", name, file.GetPackage(), err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
}
