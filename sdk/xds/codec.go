package xds

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Codec returns what a gRPC server of the engine's streams may marshal with
// ([google.golang.org/grpc.ForceServerCodecV2]): a complete answer that several streams
// have is marshalled once, and what differs, as the nonce, for each. All other messages,
// and all that is received, are left to gRPC's own codec for protobuf, whatever content
// subtype a client names. Where a codec of gRPC's old kind was registered in its place, it
// is nil, and gRPC takes that for none.
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

// codec is gRPC's own but for complete answers.
type codec struct {
	encoding.CodecV2
	answers []*answers // of the types
}

// Marshal returns v's bytes on the wire.
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

// shared returns the bytes of the response's resources, nil where it has them for itself.
func (c codec) shared(response *discovery.DiscoveryResponse) mem.Buffer {
	for _, all := range c.answers {
		if known := all.with(response.GetResources()); known != nil {
			return known.encode()
		}
	}
	return nil
}

// withoutResources returns a response with all else that is in this one, fields that this
// program does not know included.
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
