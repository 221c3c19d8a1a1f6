package grpcsocket

import (
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// introspect registers what tools look a server up with.
func (s *Server) introspect() {
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflectionv1.RegisterServerReflectionServer(s.grpc, reflection.NewServerV1(reflection.ServerOptions{
		Services: s.grpc, DescriptorResolver: &s.files,
	}))
}

// Describe has reflection describe a service whose name on the wire is not that of Go's registry.
// Call it before [Server.Serve].
func (s *Server) Describe(file protoreflect.FileDescriptor) error {
	return s.files.own.RegisterFile(file)
}

// files are the descriptors of Go's registry, after some of its own.
type files struct{ own protoregistry.Files }

// FindFileByPath implements protodesc.Resolver.
func (f *files) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if file, err := f.own.FindFileByPath(path); err == nil {
		return file, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (f *files) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if found, err := f.own.FindDescriptorByName(name); err == nil {
		return found, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}
