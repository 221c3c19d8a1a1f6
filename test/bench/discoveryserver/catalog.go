package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/hub"
	"github.com/countersign-dev/countersign/sdk/xds"
)

const (
	clusterURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	catalogued = 1000
	bulk       = 900 // bytes of a cluster beside its name: a thousand are a megabyte
)

// catalog is Envoy's clusters, the same for everybody.
type catalog struct {
	hub *hub.Hub[string]

	mu      sync.Mutex
	version int
	names   []string
	has     map[string]*xds.Resource
}

func newCatalog() *catalog {
	c := &catalog{hub: hub.New[string](hub.Config{}), has: map[string]*xds.Resource{}}
	for i := range catalogued {
		c.names = append(c.names, fmt.Sprintf("cluster-%d", i))
	}
	for _, name := range c.names {
		if err := c.put(name); err != nil {
			panic(err) // it is always the same message
		}
	}
	return c
}

func (c *catalog) typ() discovery.Type {
	return discovery.Type{URL: clusterURL, Source: c, Complete: true}
}

func (c *catalog) put(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	version := strconv.Itoa(c.version)
	metadata := &structpb.Struct{Fields: map[string]*structpb.Value{
		"version": structpb.NewStringValue(version), "bulk": structpb.NewStringValue(strings.Repeat("x", bulk)),
	}}
	body, err := anypb.New(&clusterv3.Cluster{
		Name: name, Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"bench": metadata}},
	})
	c.has[name] = &xds.Resource{Name: name, Version: version, Body: body}
	return err
}

// change changes one cluster and announces it to all watchers.
func (c *catalog) change() error {
	err := c.put(c.names[0])
	c.hub.Spread(c.names[0])
	return err
}

func (c *catalog) Peek(_ *discovery.Caller, name string) (*xds.Resource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.has[name]; found != nil {
		return found, nil
	}
	return nil, xds.ErrUnknown
}

func (c *catalog) Watch(_ *discovery.Caller, name string, notify func(string)) (func(), error) {
	return c.hub.Watch(name, func() { notify(name) }), nil
}

func (c *catalog) List(*discovery.Caller) ([]string, error) { return c.names, nil }

func (c *catalog) WatchList(*discovery.Caller, func()) (func(), error) { return func() {}, nil }
