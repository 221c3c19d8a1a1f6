// Package discovery serves Envoy's resources of many kinds to callers that it knows:
// the aggregated discovery service (ADS) and the secret discovery service (SDS) over
// TLS, with one [Type] for each kind of resource. Call [New], then [Server.Run] with the
// listeners. It knows no Kubernetes and no secrets; control-plane/kubernetes brings both.
package discovery

import (
	"log/slog"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Type is one kind of resource, with its source.
type Type = xds.Type[*Caller]

// Caller is who has opened a stream. It is shared by all that serve the stream, and
// nobody changes it.
type Caller struct {
	// Identity was verified when the stream opened; every right comes from it.
	Identity authn.Identity
	// Cluster is the one that the caller is in: that of the API server that has reviewed
	// its token, else one that its trust domain may claim. Empty where the caller has
	// claimed one that it may not: it gets nothing of any cluster then.
	Cluster string
	// Node is what the first request says of the caller.
	Node Node

	session *session // whose caller it is
}

// Node is what a client says of itself. It proves nothing: it selects among what the
// caller may have anyway, and never gives a right.
type Node struct {
	ID string
	// Metadata is node.metadata as it came, never nil.
	Metadata *structpb.Struct
	// Labels are the labels in the metadata (LABELS), those that are text.
	Labels map[string]string
}

// LogValue tells who the caller is, and nothing that it only says of itself.
func (c *Caller) LogValue() slog.Value {
	if c == nil {
		return slog.StringValue("nobody")
	}
	return slog.GroupValue(slog.String("identity", shown(c.Identity.String())), slog.String("cluster", shown(c.Cluster)))
}
