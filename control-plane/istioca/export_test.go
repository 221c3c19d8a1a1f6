package istioca

import "google.golang.org/grpc"

// Serve answers one call, whoever transports it.
func (s *Server) Serve(stream grpc.ServerStream) error { return s.serve(stream) }
