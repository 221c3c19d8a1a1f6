package grpcsocket

import (
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/countersign-dev/countersign/sdk/internal/reflection"
)

// introspect registers what tools look a server up with.
func (s *Server) introspect() {
	healthv1.RegisterHealthServer(s.grpc, s.health)
	s.reflection = reflection.Register(s.grpc)
}

// Describe has reflection describe a service whose name on the wire is not that of Go's registry.
func (s *Server) Describe(file func() *descriptorpb.FileDescriptorProto) { s.reflection.Describe(file) }
