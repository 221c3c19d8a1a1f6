package grpcsocket

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/unixpeer"
)

// onlookers are the streams of gRPC's own services, health and reflection, which neither ask a
// policy nor end by themselves.
type onlookers struct {
	mu   sync.Mutex
	open map[*onlooker]struct{}
	over bool
}

type onlooker struct {
	peer  unixpeer.Peer
	ended chan error // capacity one
}

// isOnlooker reports whether a method is of these services.
func isOnlooker(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") || strings.HasPrefix(method, "/grpc.reflection.")
}

// serve runs a stream until it ends or is ended. The handler ends once this function has returned,
// as gRPC then ends the stream.
func (o *onlookers) serve(peer unixpeer.Peer, admit func() error, handle func() error) error {
	one := &onlooker{peer, make(chan error, 1)}
	if !o.add(one) {
		return errClosing
	}
	defer o.leave(one)
	if err := admit(); err != nil { // of a policy that came before add
		return err
	}
	done := make(chan error, 1)
	go func() { done <- handle() }()
	select {
	case err := <-done:
		return err
	case err := <-one.ended:
		return err
	}
}

func (o *onlookers) add(one *onlooker) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = make(map[*onlooker]struct{})
	}
	if !o.over {
		o.open[one] = struct{}{}
	}
	return !o.over
}

func (o *onlookers) leave(one *onlooker) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, one)
}

// end ends the streams of matching peers with a status error.
func (o *onlookers) end(match func(unixpeer.Peer) bool, err error) {
	o.mu.Lock()
	open := slices.Collect(maps.Keys(o.open))
	o.mu.Unlock()
	for _, one := range open {
		if !match(one.peer) {
			continue
		}
		select {
		case one.ended <- err:
		default: // it ends already
		}
	}
}

// close ends all streams and refuses new ones.
func (o *onlookers) close() {
	o.mu.Lock()
	o.over = true
	o.mu.Unlock()
	o.end(func(unixpeer.Peer) bool { return true }, errClosing)
}

var (
	errNoLonger = status.Error(codes.PermissionDenied, "the policy of this socket no longer admits this peer")
	errClosing  = status.Error(codes.Unavailable, "the server is shutting down")
)

// stream is the interceptor of all streams: it serves admitted peers only.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	peer, err := s.Admit(stream.Context())
	switch {
	case err != nil:
		return err
	case !isOnlooker(info.FullMethod):
		return next(srv, stream)
	}
	again := func() error { _, err := s.Admit(stream.Context()); return err }
	return s.onlookers.serve(peer, again, func() error { return next(srv, stream) })
}
