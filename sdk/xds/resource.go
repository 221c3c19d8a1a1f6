// Package xds serves named, versioned resources over Envoy's xDS protocol and pushes
// them as they change. A gRPC server passes the types and their sources to [New] and
// calls [Engine.Stream] and [Engine.Fetch] from its generated methods. The engine is
// generic over the caller type and independent of the resources.
//
// A stream's protocol is a state machine without I/O: sotw.go or delta.go, each built
// on session.go and subscription.go. runner.go connects it to the stream's goroutines.
// See docs/decisions/0004-stream-engine.md for why the engine is our own.
package xds

import (
	"errors"

	"google.golang.org/protobuf/types/known/anypb"
)

// Errors a [Source] returns instead of a resource, possibly wrapped ([errors.Is]). Any
// other error except [EndError] is treated as ErrNotReady.
var (
	// ErrUnknown means that the name does not exist, or not for this caller. It is left
	// out of the answer, logged and counted; the stream continues.
	ErrUnknown = errors.New("unknown resource")
	// ErrNotReady means that the name is valid but has no content yet. The client keeps
	// what it was sent before.
	ErrNotReady = errors.New("resource is not ready")
)

// EndError is what a [Source] returns if the caller, not the name, is the problem: the
// stream or fetch ends with Status, a gRPC status error.
type EndError struct{ Status error }

// Error returns the text of the status.
func (e *EndError) Error() string { return e.Status.Error() }

// Resource is one version of a named resource. All streams that send it share it;
// neither it nor Body may be modified.
type Resource struct {
	Name string
	// Version identifies the content: unchanged content is never pushed.
	Version string
	// Body is marshalled once and shared.
	Body *anypb.Any
	// Kept is what streams keep of the resource once it was sent: the same without Body, where the
	// source can make that again. Default: the resource itself.
	Kept *Resource
	// Provides and Needs are opaque tags. While a stream has sent, but the client has
	// not acknowledged, a resource that provides a tag, updates that need the tag wait
	// for the ACK, [Config].Hold at most. (A leaf certificate needs its root.)
	Provides []string
	Needs    string
	// Refreshes lists resources to resend together with this one if the stream holds
	// them: Envoy warms a changed cluster anew and waits for its endpoints even if they
	// are unchanged. They must be of a type pushed later ([Config].Types); others are
	// ignored, which prevents cycles. The types after this one, other than the
	// refreshed, wait for the client's answer, [Config].Hold at most: Envoy requests
	// the endpoints of a new cluster before it acknowledges the cluster, and a route
	// must not overtake them.
	Refreshes []Ref
}

// Ref names a resource of any type.
type Ref struct {
	Type string // URL
	Name string
}

// Source supplies the resources of one type to callers of type C. Methods must be safe
// for concurrent use and must not block on I/O.
type Source[C any] interface {
	// Peek returns the current resource.
	Peek(caller C, name string) (*Resource, error)
	// Watch calls notify after each change of Peek's result, but not for the current
	// state. notify does not block. A call already in progress may finish after stop
	// returns. An error means that there will be no notifications; Peek is still called
	// once, and if that has an answer, Watch is called again: the name is then refused if the
	// error is ErrUnknown.
	Watch(caller C, name string, notify func(name string)) (stop func(), err error)
}

// Lister is a [Source] whose type supports the wildcard: a client that names nothing in
// its first request, or "*", subscribes to everything List returns. For other sources
// neither is a subscription.
type Lister[C any] interface {
	Source[C]
	// List returns the names currently available to the caller, in any order, without
	// duplicates. An error other than [EndError] means that there is no list yet: the
	// client gets no answer until there is one and keeps the result of an earlier list.
	// [ErrNotReady] with names means that there may be more: a stream serves these, and
	// removes none.
	List(caller C) ([]string, error)
	// WatchList calls notify after each change of List's result, under the same rules
	// as Watch.
	WatchList(caller C, notify func()) (stop func(), err error)
}

// Type is one resource type of an engine.
type Type[C any] struct {
	// URL is the type URL ("type.googleapis.com/…"). Required.
	URL string
	// Source supplies the resources. Required.
	Source Source[C]
	// Complete makes each state-of-the-world response hold everything the stream subscribes
	// to, in one message whatever its size; clients delete what it omits (listeners,
	// clusters). The first response is sent even if empty. To keep a resource that is not
	// ready from being deleted, no response goes out before a [Lister]'s list is available,
	// resources already sent stay in responses unchanged, and if the first request carries
	// a version, meaning that the client holds state from an earlier stream, the first
	// response waits for every name. Otherwise a name that is not ready is left out and
	// follows later. Default: a response holds what changed, as for secrets.
	Complete bool
}
