// Package xds serves named, versioned resources over Envoy's xDS protocol and
// pushes them as they change: give [New] the types with their sources and call
// [Engine.Stream] and [Engine.Fetch] from the generated gRPC methods. The engine
// is generic in who the caller is and knows nothing of what it serves.
//
// A stream's protocol is a state machine without I/O: sotw.go or delta.go, each on
// session.go and subscription.go. runner.go moves messages in and out of it. docs/decisions/0004-stream-engine.md
// says why the engine is our own.
package xds

import (
	"errors"

	"google.golang.org/protobuf/types/known/anypb"
)

// What a [Source] answers instead of a resource; wrapped errors count ([errors.Is]).
// Any error that is neither is treated as ErrNotReady.
var (
	// ErrUnknown: there is no such name, or not for this caller. It is left out
	// of the answer, logged and counted; the stream goes on.
	ErrUnknown = errors.New("unknown resource")
	// ErrNotReady: the name is right and there is nothing to send yet. What the
	// client was sent before stays with it.
	ErrNotReady = errors.New("resource is not ready")
)

// EndError is what a [Source] answers where the caller, not the name, is the reason:
// the stream or fetch ends with Status, a gRPC status error.
type EndError struct{ Status error }

// Error returns the status.
func (e *EndError) Error() string { return e.Status.Error() }

// Resource is one version of a named resource. It is shared by all streams that
// it is sent on, and nobody changes it or Body.
type Resource struct {
	Name string
	// Version stands for the content: unchanged content is never pushed.
	Version string
	// Body is marshalled once and shared.
	Body *anypb.Any
	// Provides and Needs are opaque tags. Where a stream was sent a resource that
	// provides a tag and did not acknowledge it yet, the update of one that needs
	// this tag waits for the acknowledgement, [Config].Hold at most. (A leaf
	// certificate needs the root that it chains to.)
	Provides []string
	Needs    string
	// Refreshes are resources that are sent again on a stream when this one is, where
	// the stream holds them: Envoy warms a changed cluster anew, and waits for its
	// endpoints even if they are the same. They must be of a type that is pushed
	// later ([Config].Types); others are ignored, so that nothing goes in circles. The
	// types after, but for that one, wait until the client has answered, [Config].Hold at
	// most: it asks for the endpoints of a new cluster before it acknowledges the cluster,
	// and a route must not overtake them.
	Refreshes []Ref
}

// Ref names a resource of any type.
type Ref struct {
	Type string // URL
	Name string
}

// Source is where the resources of one type come from. C is the caller. Methods
// are called by many goroutines at once and must not block on the outside world.
type Source[C any] interface {
	// Peek returns the resource as it is now.
	Peek(caller C, name string) (*Resource, error)
	// Watch has notify called after each change of what Peek answers, not for the
	// present state. notify does not block. A call that has begun may still run
	// when stop returns. An error means that nothing will ever be told; Peek is
	// asked once all the same.
	Watch(caller C, name string, notify func(name string)) (stop func(), err error)
}

// Lister is a [Source] whose type knows the wildcard: a client that names nothing in its
// first request, or the name "*", is subscribed to all that List answers. Without it
// neither is a subscription.
type Lister[C any] interface {
	Source[C]
	// List returns the names that the caller may have now, in any order, each once. An
	// error other than [EndError] means that there is no list yet: a client is not answered
	// before there is one, and keeps what an earlier one gave it.
	List(caller C) ([]string, error)
	// WatchList has notify called after each change of what List answers. The rules are
	// those of Watch.
	WatchList(caller C, notify func()) (stop func(), err error)
}

// Type is one type of resource on an engine.
type Type[C any] struct {
	// URL is the type URL ("type.googleapis.com/…"). Required.
	URL string
	// Source has the resources. Required.
	Source Source[C]
	// Complete: each state-of-the-world answer holds all that the stream is subscribed
	// to, in one message whatever its size, and a client deletes what is left out
	// (listeners, clusters). The first answer is sent even if it is empty. What is not ready
	// must not be deleted by that: no answer goes before the list of a [Lister] is there; a
	// resource that was sent stays in the answers as it was; and where the first request bears
	// a version, so that the client holds what an earlier stream sent, the first answer waits
	// for every name. Otherwise a name that is not ready is left out and follows.
	// Default: an answer holds what changed, as for secrets.
	Complete bool
}
