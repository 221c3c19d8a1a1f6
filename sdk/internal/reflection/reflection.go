// Package reflection serves gRPC's reflection: call [Register]. It reads the files that
// protoc-gen-go compiled in, by [Compiled]. gRPC's own package makes them anew from their
// descriptors, and links a library for that which costs each start 0.2 MB and half a millisecond. No
// goroutine; all is safe for concurrent use.
package reflection

import (
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Server is the reflection service of one gRPC server.
type Server struct {
	reflectionv1.UnimplementedServerReflectionServer
	on *grpc.Server

	mu  sync.Mutex
	own []func() *descriptorpb.FileDescriptorProto
}

// Register registers the service on a server.
func Register(on *grpc.Server) *Server {
	s := &Server{on: on}
	reflectionv1.RegisterServerReflectionServer(on, s)
	return s
}

// Describe adds a file that Go's registry does not have. It takes precedence over those in the
// registry, and is made when a client asks.
func (s *Server) Describe(file func() *descriptorpb.FileDescriptorProto) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = append(s.own, file)
}

// ServerReflectionInfo implements the service.
func (s *Server) ServerReflectionInfo(stream reflectionv1.ServerReflection_ServerReflectionInfoServer) error {
	sent := make(map[string]bool)
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		out, err := s.answer(in, sent)
		if err != nil {
			return err
		}
		out.ValidHost, out.OriginalRequest = in.GetHost(), in
		if err := stream.Send(out); err != nil {
			return err
		}
	}
}

// answer returns the response to one request. An error ends the stream.
func (s *Server) answer(in *reflectionv1.ServerReflectionRequest, sent map[string]bool) (*reflectionv1.ServerReflectionResponse, error) {
	var file *descriptorpb.FileDescriptorProto
	var err error
	switch asked := in.GetMessageRequest().(type) {
	case *reflectionv1.ServerReflectionRequest_ListServices:
		return s.services(), nil
	case *reflectionv1.ServerReflectionRequest_AllExtensionNumbersOfType:
		return extensions(protoreflect.FullName(asked.AllExtensionNumbersOfType)), nil
	case *reflectionv1.ServerReflectionRequest_FileByFilename:
		file, err = s.file(asked.FileByFilename)
	case *reflectionv1.ServerReflectionRequest_FileContainingSymbol:
		file, err = s.defining(asked.FileContainingSymbol)
	case *reflectionv1.ServerReflectionRequest_FileContainingExtension:
		file, err = extending(asked.FileContainingExtension)
	default:
		return nil, status.Errorf(codes.InvalidArgument, "invalid MessageRequest: %T", asked)
	}
	if err != nil {
		return missing(err), nil
	}
	return s.withDependencies(file, sent)
}

// missing is the response to a request for what the server does not have.
func missing(err error) *reflectionv1.ServerReflectionResponse {
	return &reflectionv1.ServerReflectionResponse{MessageResponse: &reflectionv1.ServerReflectionResponse_ErrorResponse{
		ErrorResponse: &reflectionv1.ErrorResponse{ErrorCode: int32(codes.NotFound), ErrorMessage: err.Error()},
	}}
}

func (s *Server) services() *reflectionv1.ServerReflectionResponse {
	list := &reflectionv1.ListServiceResponse{}
	for _, name := range slices.Sorted(maps.Keys(s.on.GetServiceInfo())) {
		list.Service = append(list.Service, &reflectionv1.ServiceResponse{Name: name})
	}
	return &reflectionv1.ServerReflectionResponse{MessageResponse: &reflectionv1.ServerReflectionResponse_ListServicesResponse{ListServicesResponse: list}}
}

// extensions returns the numbers of all known extensions of a message.
func extensions(message protoreflect.FullName) *reflectionv1.ServerReflectionResponse {
	if _, err := protoregistry.GlobalFiles.FindDescriptorByName(message); err != nil {
		return missing(err)
	}
	found := &reflectionv1.ExtensionNumberResponse{BaseTypeName: string(message)}
	protoregistry.GlobalTypes.RangeExtensionsByMessage(message, func(x protoreflect.ExtensionType) bool {
		found.ExtensionNumber = append(found.ExtensionNumber, int32(x.TypeDescriptor().Number()))
		return true
	})
	slices.Sort(found.ExtensionNumber)
	return &reflectionv1.ServerReflectionResponse{MessageResponse: &reflectionv1.ServerReflectionResponse_AllExtensionNumbersResponse{AllExtensionNumbersResponse: found}}
}

// withDependencies returns a file and all that it imports, but for those that were sent before.
func (s *Server) withDependencies(file *descriptorpb.FileDescriptorProto, sent map[string]bool) (*reflectionv1.ServerReflectionResponse, error) {
	reply := &reflectionv1.FileDescriptorResponse{}
	for queue := []*descriptorpb.FileDescriptorProto{file}; len(queue) > 0; queue = queue[1:] {
		encoded, err := proto.Marshal(queue[0])
		if err != nil {
			return nil, err
		}
		reply.FileDescriptorProto = append(reply.FileDescriptorProto, encoded)
		sent[queue[0].GetName()] = true
		for _, path := range queue[0].GetDependency() {
			if sent[path] {
				continue
			}
			sent[path] = true
			if next, err := s.file(path); err == nil { // a file that is not linked is left out
				queue = append(queue, next)
			}
		}
	}
	return &reflectionv1.ServerReflectionResponse{MessageResponse: &reflectionv1.ServerReflectionResponse_FileDescriptorResponse{FileDescriptorResponse: reply}}, nil
}

// file returns the file with that path.
func (s *Server) file(path string) (*descriptorpb.FileDescriptorProto, error) {
	if own := s.described(func(f *descriptorpb.FileDescriptorProto) bool { return f.GetName() == path }); own != nil {
		return own, nil
	}
	found, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if err != nil {
		return nil, err
	}
	return Compiled(found)
}

// defining returns the file that defines a service, a method, a message or a field.
func (s *Server) defining(symbol string) (*descriptorpb.FileDescriptorProto, error) {
	if own := s.described(func(f *descriptorpb.FileDescriptorProto) bool { return defines(f, symbol) }); own != nil {
		return own, nil
	}
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(symbol))
	if err != nil {
		return nil, err
	}
	return Compiled(found.ParentFile())
}

func extending(asked *reflectionv1.ExtensionRequest) (*descriptorpb.FileDescriptorProto, error) {
	found, err := protoregistry.GlobalTypes.FindExtensionByNumber(protoreflect.FullName(asked.GetContainingType()), protoreflect.FieldNumber(asked.GetExtensionNumber()))
	if err != nil {
		return nil, err
	}
	return Compiled(found.TypeDescriptor().ParentFile())
}

// described returns the file of [Server.Describe] that matches; nil: none.
func (s *Server) described(matches func(*descriptorpb.FileDescriptorProto) bool) *descriptorpb.FileDescriptorProto {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, made := range s.own {
		if file := made(); matches(file) {
			return file
		}
	}
	return nil
}

// defines reports whether a symbol is a top-level name of the file, or within one.
func defines(file *descriptorpb.FileDescriptorProto, symbol string) bool {
	within := func(name string) bool {
		full := string(protoreflect.FullName(file.GetPackage()).Append(protoreflect.Name(name)))
		return symbol == full || strings.HasPrefix(symbol, full+".")
	}
	return slices.ContainsFunc(file.GetService(), func(s *descriptorpb.ServiceDescriptorProto) bool { return within(s.GetName()) }) ||
		slices.ContainsFunc(file.GetMessageType(), func(m *descriptorpb.DescriptorProto) bool { return within(m.GetName()) })
}
