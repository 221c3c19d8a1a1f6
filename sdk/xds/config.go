package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Config is what an engine is made of.
type Config[C any] struct {
	// Types are served in this order: where several types have changed, the
	// changes of the first are pushed first, removals too. Clusters, endpoints,
	// listeners, routes is the order that makes before it breaks. Required.
	Types []Type[C]
	// Admit returns who the caller of a stream or fetch is, or a status error that
	// ends it. It is asked once; what the client sends later changes nothing. Required.
	Admit func(context.Context) (C, error)
	// Node is shown the node of the first request (nil where it has none), whatever its
	// type, after Limits. It returns the caller as it is from then on, or a status error
	// that ends the stream or fetch; no Source was asked before. It is asked again only
	// where [Engine.End] was called meanwhile. Default: the caller stays as it is.
	Node func(ctx context.Context, caller C, node *core.Node) (C, error)
	// Observe is told what happens on streams. It must not block and is called by
	// many goroutines at once. Default: nobody.
	Observe func(Event[C])
	// Log gets refusals and NACKs as warnings, the rest as debug. Default: silent.
	Log *slog.Logger
	// Hold is how long an update waits for the acknowledgement of what it needs, or of
	// what warms before it (see [Resource]). Default: 5 s; negative: not at all.
	Hold time.Duration
	// Limits bound what a client may ask for.
	Limits Limits
}

// Limits bound what a client may ask for. The size of a message is bounded by
// the gRPC server ([google.golang.org/grpc.MaxRecvMsgSize]).
type Limits struct {
	// MaxNames is how many names of a type a stream may hold; more ends it with
	// ResourceExhausted. Default: 10,000.
	MaxNames int
	// MaxNameLength in bytes; a longer name is refused, the others are served.
	// Default: 8,300 (two paths of 4,096 bytes with a prefix).
	MaxNameLength int
	// MaxNodeID in bytes; a longer node.id ends the stream with InvalidArgument.
	// Default: 1,024.
	MaxNodeID int
	// RequireNode ends a stream whose first request has no node.id with
	// InvalidArgument. Default: false.
	RequireNode bool
}

// checked returns the config with its defaults filled in.
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
		c.Log = slog.New(slog.DiscardHandler)
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
