// Package discovery (experimental) serves Envoy resources to authenticated callers: the
// aggregated and secret discovery services (ADS, SDS) over TLS, with one [Type] per kind of
// resource. A control plane calls [New], then [Server.Run] with its listeners; Run also ends
// expired streams. The package depends on neither Kubernetes nor secrets: kubernetes/secrets is a
// source of the latter. README.md follows one stream.
package discovery

import (
	"log/slog"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Type is one kind of resource with its source.
type Type = xds.Type[*Caller]

// Caller is the authenticated client of a stream. Everything that serves the stream
// shares it; it is immutable.
type Caller struct {
	// Identity was verified when the stream opened; every permission derives from it.
	Identity authn.Identity
	// Cluster is the caller's cluster: that of the API server that reviewed its token,
	// else one that its trust domain may claim. It is empty after a disallowed claim:
	// such a caller gets no resource of any cluster.
	Cluster string
	// Node is the caller's own claim in the first request.
	Node Node

	session *session // the session of the caller
}

// Node is a client's claim about itself. It proves nothing: it selects among what the
// caller is allowed to have and never grants anything.
type Node struct {
	ID string
	// Metadata is node.metadata as received, never nil.
	Metadata *structpb.Struct
	// Labels are the string-valued labels in the metadata (LABELS).
	Labels map[string]string
}

// LogValue returns the caller's verified attributes, not its own claims.
func (c *Caller) LogValue() slog.Value {
	if c == nil {
		return slog.StringValue("nobody")
	}
	return slog.GroupValue(slog.String("identity", shown(c.Identity.String())), slog.String("cluster", shown(c.Cluster)))
}
