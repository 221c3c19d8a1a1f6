package reflection_test

import (
	"context"
	"io"
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/internal/reflection"
)

// served are the files of services that our sockets serve.
var served = []protoreflect.FileDescriptor{
	secretv3.File_envoy_service_secret_v3_sds_proto, discoveryv3.File_envoy_service_discovery_v3_ads_proto,
	healthv1.File_grpc_health_v1_health_proto, reflectionv1.File_grpc_reflection_v1_reflection_proto,
	workloadv1.File_spiffe_workload_v1_workload_proto,
}

// Each file that a client may need is as gRPC's own reflection has it.
func TestCompiledFilesAreThoseOfTheirDescriptors(t *testing.T) {
	seen := make(map[string]bool)
	queue := slices.Clone(served)
	for ; len(queue) > 0; queue = queue[1:] {
		file := queue[0]
		if seen[file.Path()] {
			continue
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			queue = append(queue, file.Imports().Get(i).FileDescriptor)
		}
		got, err := reflection.Compiled(file)
		if err != nil {
			t.Error(err)
			continue
		}
		want := protodesc.ToFileDescriptorProto(file)
		if file.Messages().Len()+file.Enums().Len() == 0 {
			for _, extension := range want.GetExtension() {
				extension.JsonName = nil
			}
		}
		if !proto.Equal(got, want) {
			t.Errorf("%s:\n%v\nwant\n%v", file.Path(), got, want)
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d files", len(seen))
	}
}

type asked = reflectionv1.ServerReflectionRequest

func TestReflectionAnswersAsGRPCsOwn(t *testing.T) {
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, discoveryv3.UnimplementedAggregatedDiscoveryServiceServer{})
	service := reflection.Register(server)
	service.Describe(func() *descriptorpb.FileDescriptorProto {
		return &descriptorpb.FileDescriptorProto{
			Name: new("own.proto"), Dependency: []string{"google/protobuf/any.proto", "of-nobody.proto"},
			Service: []*descriptorpb.ServiceDescriptorProto{{Name: new("Own")}}, MessageType: []*descriptorpb.DescriptorProto{{Name: new("Message")}},
		}
	})
	for name, c := range map[string]struct {
		ask  *asked
		want []string // the paths of files; nil: not found
	}{
		"a path":               {&asked{MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: "google/protobuf/any.proto"}}, []string{"google/protobuf/any.proto"}},
		"a path of our own":    {&asked{MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: "own.proto"}}, []string{"own.proto", "google/protobuf/any.proto"}},
		"no path":              {&asked{MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: "of-nobody.proto"}}, nil},
		"a service of our own": {symbol("Own"), []string{"own.proto", "google/protobuf/any.proto"}},
		"a method of our own":  {symbol("Own.Call"), []string{"own.proto", "google/protobuf/any.proto"}},
		"a field of our own":   {symbol("Message.field"), []string{"own.proto", "google/protobuf/any.proto"}},
		"a field":              {symbol("google.protobuf.Any.value"), []string{"google/protobuf/any.proto"}},
		"no symbol":            {symbol("Own2"), nil},
		"an extension": {&asked{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingExtension{
			FileContainingExtension: &reflectionv1.ExtensionRequest{ContainingType: "google.protobuf.MethodOptions", ExtensionNumber: 72295728},
		}}, []string{"google/api/annotations.proto", "google/api/http.proto", "google/protobuf/descriptor.proto"}},
		"no extension": {&asked{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingExtension{
			FileContainingExtension: &reflectionv1.ExtensionRequest{ContainingType: "google.protobuf.MethodOptions", ExtensionNumber: 1},
		}}, nil},
	} {
		reply := answer(t, service, c.ask)[0]
		var got []string
		for _, encoded := range reply.GetFileDescriptorResponse().GetFileDescriptorProto() {
			var file descriptorpb.FileDescriptorProto
			if err := proto.Unmarshal(encoded, &file); err != nil {
				t.Fatal(err)
			}
			got = append(got, file.GetName())
		}
		if !slices.Equal(got, c.want) || (c.want == nil) != (reply.GetErrorResponse().GetErrorCode() == int32(codes.NotFound)) {
			t.Errorf("%s: got %q, %v; want %q", name, got, reply.GetErrorResponse(), c.want)
		}
		if reply.GetOriginalRequest() != c.ask {
			t.Errorf("%s: the answer does not have the request", name)
		}
	}
}

func symbol(name string) *asked {
	return &asked{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}}
}

func TestReflectionListsServicesAndExtensions(t *testing.T) {
	server := grpc.NewServer()
	service := reflection.Register(server)
	extensions := func(of string) *asked {
		return &asked{MessageRequest: &reflectionv1.ServerReflectionRequest_AllExtensionNumbersOfType{AllExtensionNumbersOfType: of}}
	}
	replies := answer(t, service, &asked{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}, extensions("google.protobuf.MethodOptions"), extensions("of.Nobody"))
	if services := replies[0].GetListServicesResponse().GetService(); len(services) != 1 || services[0].GetName() != "grpc.reflection.v1.ServerReflection" {
		t.Errorf("got the services %v", services)
	}
	numbers := replies[1].GetAllExtensionNumbersResponse().GetExtensionNumber()
	if !slices.Contains(numbers, 72295728) || !slices.IsSorted(numbers) {
		t.Errorf("got the numbers %v", numbers)
	}
	if replies[2].GetErrorResponse().GetErrorCode() != int32(codes.NotFound) {
		t.Errorf("extensions of an unknown message: %v", replies[2])
	}
}

// A client that has a file does not get it a second time as what another one imports.
func TestImportedFileIsSentOnceOnAStream(t *testing.T) {
	service := reflection.Register(grpc.NewServer())
	replies := answer(t, service, symbol("google.protobuf.Any"), symbol("envoy.service.discovery.v3.Resource"), symbol("google.protobuf.Any"))
	for i, want := range []int{1, 0, 1} {
		count := 0
		for _, encoded := range replies[i].GetFileDescriptorResponse().GetFileDescriptorProto() {
			var file descriptorpb.FileDescriptorProto
			if err := proto.Unmarshal(encoded, &file); err != nil {
				t.Fatal(err)
			}
			if file.GetName() == "google/protobuf/any.proto" {
				count++
			}
		}
		if count != want {
			t.Errorf("answer %d has the file %d times, want %d", i, count, want)
		}
	}
}

func TestRequestForNothingEndsTheStream(t *testing.T) {
	service := reflection.Register(grpc.NewServer())
	if err := service.ServerReflectionInfo(&stream{asks: []*asked{{}}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("it ends with %v", err)
	}
	if _, err := reflection.Compiled(protodescFile(t)); err == nil {
		t.Error("a file without a Go type is there")
	}
}

// protodescFile is a file that no protoc-gen-go compiled.
func protodescFile(t *testing.T) protoreflect.FileDescriptor {
	t.Helper()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: new("made.proto"), MessageType: []*descriptorpb.DescriptorProto{{Name: new("Made")}}}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func answer(t *testing.T, service *reflection.Server, asks ...*asked) []*reflectionv1.ServerReflectionResponse {
	t.Helper()
	s := &stream{asks: asks}
	if err := service.ServerReflectionInfo(s); err != nil || len(s.replies) != len(asks) {
		t.Fatalf("%d answers to %d requests: %v", len(s.replies), len(asks), err)
	}
	return s.replies
}

// stream is a client that sends all its requests at once.
type stream struct {
	grpc.ServerStream
	asks    []*asked
	replies []*reflectionv1.ServerReflectionResponse
}

func (s *stream) Context() context.Context { return context.Background() }

func (s *stream) Recv() (*asked, error) {
	if len(s.asks) == 0 {
		return nil, io.EOF
	}
	next := s.asks[0]
	s.asks = s.asks[1:]
	return next, nil
}

func (s *stream) Send(reply *reflectionv1.ServerReflectionResponse) error {
	s.replies = append(s.replies, reply)
	return nil
}
