package xds

import (
	"sync"
	"weak"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// encoded holds an answer's resources in wire format. The reference is weak: streams
// share the bytes while a send is in flight, and the next garbage collection frees them
// afterwards.
type encoded struct {
	mu    sync.Mutex
	asked bool
	bytes weak.Pointer[[]byte]
}

// encode returns the resources as they appear in a response; all returned buffers share
// the same bytes. It returns nil for the first caller, since sharing gains nothing for
// a single stream, and if the resources cannot be marshalled.
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
			return nil // gRPC's codec reports why
		}
		known = &made
		e.bytes = weak.Make(known)
	}
	// A pooled buffer is referenced until it is freed, which keeps the weak pointer alive.
	return mem.NewBuffer(known, mem.NopBufferPool{})
}

// with returns the answer that holds these very bodies, not merely equal ones.
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
