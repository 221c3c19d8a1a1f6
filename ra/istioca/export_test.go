package istioca

import "google.golang.org/grpc"

// Serve answers one call, over any transport.
func (s *Server) Serve(stream grpc.ServerStream) error { return s.serve(stream) }

// Replace takes other settings over at once.
func (s *Server) Replace(cfg Config) error {
	take, err := s.Prepare(cfg)
	if err == nil {
		take()
	}
	return err
}
