package xds

import (
	"sync"
	"weak"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// encoded is an answer's resources on the wire. They are held weakly: while they are on
// their way to somebody all have the same bytes, and when nobody needs them they go with the
// next collection.
type encoded struct {
	mu    sync.Mutex
	asked bool
	bytes weak.Pointer[[]byte]
}

// encode returns the resources as a response has them on the wire; each buffer has the
// same bytes. It returns nil for the first who asks, as there is no gain in sharing what only
// one stream has, and where they cannot be marshalled.
func (a *answer) encode() mem.Buffer {
	e := &a.encoded
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.asked {
		e.asked = true
		return nil
	}
	known := e.bytes.Value()
	if known == nil {
		made, err := proto.Marshal(&discovery.DiscoveryResponse{Resources: a.bodies})
		if err != nil {
			return nil // gRPC's codec says why
		}
		known = &made
		e.bytes = weak.Make(known)
	}
	// What is to be given back to a pool is held until it is free: that keeps it known.
	return mem.NewBuffer(known, mem.NopBufferPool{})
}

// with returns the answer that has just these bodies, not others that are equal.
func (a *answers) with(bodies []*anypb.Any) *answer {
	if len(bodies) == 0 {
		return nil
	}
	a.mu.Lock()
	last := a.last
	a.mu.Unlock()
	for _, known := range last {
		if len(known.bodies) == len(bodies) && &known.bodies[0] == &bodies[0] {
			return known
		}
	}
	return nil
}
