package xds

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Codec returns the codec for a gRPC server that serves the engine's streams
// ([google.golang.org/grpc.ForceServerCodecV2]). It marshals a complete answer shared
// by several streams once and the rest of the response, such as the nonce, per stream.
// All other messages, and everything received, go to gRPC's own protobuf codec,
// whatever content subtype the client names. Codec returns nil, which gRPC ignores, if
// an old-style codec is registered in its place.
func (e *Engine[C]) Codec() encoding.CodecV2 {
	own := encoding.GetCodecV2(grpcproto.Name)
	if own == nil {
		return nil
	}
	c := codec{CodecV2: own}
	for _, p := range e.sotw {
		c.answers = append(c.answers, p.answers)
	}
	return c
}

// codec wraps gRPC's protobuf codec and shares the bytes of complete answers.
type codec struct {
	encoding.CodecV2
	answers []*answers // one per type
}

// Marshal returns the wire format of v.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	response, ok := v.(*discovery.DiscoveryResponse)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	resources := c.shared(response)
	if resources == nil {
		return c.CodecV2.Marshal(v)
	}
	rest, err := c.CodecV2.Marshal(withoutResources(response))
	if err != nil {
		return nil, err
	}
	return append(rest, resources), nil
}

// shared returns the shared bytes of the response's resources, or nil if they are not shared.
func (c codec) shared(response *discovery.DiscoveryResponse) mem.Buffer {
	for _, all := range c.answers {
		if known := all.with(response.GetResources()); known != nil {
			return known.encode()
		}
	}
	return nil
}

// withoutResources returns a copy of response without its resources. Unknown fields are
// kept.
func withoutResources(response *discovery.DiscoveryResponse) *discovery.DiscoveryResponse {
	rest := &discovery.DiscoveryResponse{}
	from, to := response.ProtoReflect(), rest.ProtoReflect()
	resources := from.Descriptor().Fields().ByName("resources")
	from.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field != resources {
			to.Set(field, value)
		}
		return true
	})
	to.SetUnknown(from.GetUnknown())
	return rest
}
