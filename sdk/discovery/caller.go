// Package discovery serves Envoy's resources of many kinds to callers that it knows:
// the aggregated discovery service (ADS) and the secret discovery service (SDS) over
// TLS, with one [Type] for each kind of resource. It knows no Kubernetes and no secrets;
// providers/kubernetes brings both.
package discovery

import (
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/sdk/authn"
)

// Caller is who has opened a stream. It is shared by all that serve the stream, and
// nobody changes it.
type Caller struct {
	// Identity was verified when the stream opened; every right comes from it.
	Identity authn.Identity
	// Cluster is the one that the caller is in: that of the API server that has reviewed
	// its token, else one that its trust domain may claim.
	Cluster string
	// Node is what the first request says of the caller.
	Node Node
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
