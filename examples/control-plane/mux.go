package main

import (
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/countersign-dev/countersign/sdk/controlplane"
)

// mux serves secrets from held, and all other types from snapshots.
func mux(snapshots, held cachev3.Cache) *cachev3.MuxCache {
	return &cachev3.MuxCache{
		Classify:      func(r *cachev3.Request) string { return place(r.GetTypeUrl()) },
		ClassifyDelta: func(r *cachev3.DeltaRequest) string { return place(r.GetTypeUrl()) },
		Caches:        map[string]cachev3.Cache{controlplane.TypeURL: held, "": snapshots},
	}
}

func place(typeURL string) string {
	if typeURL == controlplane.TypeURL {
		return typeURL
	}
	return ""
}
