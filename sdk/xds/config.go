package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Config configures an engine. Types and Admit are required.
type Config[C any] struct {
	// Types lists the served types in push order: when several types have changed,
	// changes of the first, removals included, are pushed first. Clusters, endpoints,
	// listeners, routes is the make-before-break order. Required.
	Types []Type[C]
	// Admit returns the caller of a stream or fetch, or a status error that ends it. It is
	// called once per stream; nothing the client sends later changes the result. Required.
	Admit func(context.Context) (C, error)
	// Node receives the node of the first request, of whatever type, after Limits are checked;
	// nil if the request has none. It returns the caller for the rest of the stream or a status
	// error that ends it. No Source is called before Node returns. Node is called again only if
	// [Engine.End] ran meanwhile. Default: the caller stays the same.
	Node func(ctx context.Context, caller C, node *core.Node) (C, error)
	// Ended is called once for each stream that was admitted, before its client can see the
	// final status: a limit that it frees is free when the client opens the next stream. It
	// must not block and must be safe for concurrent use. Default: none.
	Ended func(context.Context)
	// Observe receives stream events. It must not block and must be safe for concurrent
	// use. Default: none.
	Observe func(Event[C])
	// Log receives rejections and NACKs as warnings, everything else at debug level. Default: [slog.Default].
	Log *slog.Logger
	// Hold limits how long an update waits for the ACK of a resource it needs, or of one
	// that warms before it (see [Resource]). Default: 5 s; negative disables waiting.
	Hold time.Duration
	// Limits bounds what a client may request.
	Limits Limits
}

// Limits bounds what a client may request. The gRPC server bounds message size
// ([google.golang.org/grpc.MaxRecvMsgSize]).
type Limits struct {
	// MaxNames is the maximum number of names per type on a stream; more end the stream
	// with ResourceExhausted. Default: 10,000.
	MaxNames int
	// MaxNameLength is in bytes. Longer names are refused; the others are served.
	// Default: 8,300 (two 4,096-byte paths with a prefix).
	MaxNameLength int
	// MaxNodeID is in bytes. A longer node.id ends the stream with InvalidArgument.
	// Default: 1,024.
	MaxNodeID int
	// RequireNode ends a stream whose first request has no node.id with
	// InvalidArgument. Default: false.
	RequireNode bool
}

// checked validates the config and returns it with defaults applied.
func (c Config[C]) checked() (Config[C], error) {
	if c.Admit == nil {
		return c, errors.New("xds: Config.Admit is required")
	}
	if len(c.Types) == 0 {
		return c, errors.New("xds: Config.Types is empty, one type at least is required")
	}
	for i, t := range c.Types {
		if t.URL == "" || t.Source == nil {
			return c, fmt.Errorf("xds: Config.Types[%d] needs a URL and a Source", i)
		}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Ended == nil {
		c.Ended = func(context.Context) {}
	}
	if c.Observe == nil {
		c.Observe = func(Event[C]) {}
	}
	if c.Hold == 0 {
		c.Hold = 5 * time.Second
	}
	c.Limits = c.Limits.orDefaults()
	return c, nil
}

func (l Limits) orDefaults() Limits {
	for _, f := range []struct {
		field *int
		value int
	}{{&l.MaxNames, 10_000}, {&l.MaxNameLength, 8300}, {&l.MaxNodeID, 1024}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return l
}
