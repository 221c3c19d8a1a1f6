package xds

// EventKind is what happened on a stream.
type EventKind int

// The kinds, each with the fields of [Event] that it sets beside Stream and Caller.
const (
	Opened  EventKind = iota + 1
	Closed            // Node; Err, nil where the client ended the stream
	Pushed            // Node, Type, Version, Names
	Acked             // Node, Type, Version
	Nacked            // Node, Type, Version, Names, Reason
	Refused           // Node, Type, Names
)

// String returns the kind in a word.
func (k EventKind) String() string {
	names := [...]string{"opened", "closed", "pushed", "acked", "nacked", "refused"}
	if k < Opened || int(k) > len(names) {
		return "unknown"
	}
	return names[k-1]
}

// Event tells an observer what happened on a stream. Node, Names and Reason come
// from the client: Reason and the Names of Nacked and Refused are cut and escaped,
// none of them may become a metric's label.
type Event[C any] struct {
	Kind    EventKind
	Stream  uint64 // numbers the streams of an engine; 0 for a fetch
	Caller  C
	Node    string // node.id of the first request, cut and escaped
	Type    string // type URL
	Version string
	Names   []string // of Pushed: those that the client did not have
	Reason  string
	Err     error
}
