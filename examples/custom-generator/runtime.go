package main

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"sync"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/hub"
	"github.com/countersign-dev/countersign/sdk/xds"
)

const (
	runtimeURL = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
	layer      = "features" // the only name that Envoys subscribe to (rtds_layer)
)

// features is a generator of Envoy's runtime layer from numbers, which are separate for each
// namespace.
type features struct {
	changed *hub.Hub[string] // by namespace

	mu      sync.Mutex
	numbers map[string]map[string]any
}

func newFeatures() *features {
	return &features{changed: hub.New[string](hub.Config{}), numbers: map[string]map[string]any{}}
}

// Type describes the resource type to the server.
func (f *features) Type() discovery.Type { return discovery.Type{URL: runtimeURL, Source: f} }

// Set sets the number of a key in a namespace and notifies its Envoys.
func (f *features) Set(namespace, key string, number float64) {
	f.mu.Lock()
	next := maps.Clone(f.numbers[namespace]) // maps that were handed out are immutable
	if next == nil {
		next = map[string]any{}
	}
	next[key] = number
	f.numbers[namespace] = next
	f.mu.Unlock()
	f.changed.Changed(namespace)
}

// Peek returns the layer of the caller's verified namespace, whatever the node claims.
func (f *features) Peek(c *discovery.Caller, name string) (*xds.Resource, error) {
	if name != layer || c.Identity.Namespace == "" {
		return nil, xds.ErrUnknown
	}
	f.mu.Lock()
	numbers := f.numbers[c.Identity.Namespace]
	f.mu.Unlock()
	fields, err := structpb.NewStruct(numbers)
	if err != nil {
		return nil, err
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(&runtimev3.Runtime{Name: name, Layer: fields})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return &xds.Resource{Name: name, Version: hex.EncodeToString(sum[:8]), Body: &anypb.Any{TypeUrl: runtimeURL, Value: body}}, nil
}

// Watch reports changes of the caller's namespace only.
func (f *features) Watch(c *discovery.Caller, name string, notify func(string)) (stop func(), err error) {
	return f.changed.Watch(c.Identity.Namespace, func() { notify(name) }), nil
}
