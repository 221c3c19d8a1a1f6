package xds

// EventKind is the kind of an [Event].
type EventKind int

// The event kinds, with the fields of [Event] each sets besides Stream and Caller.
const (
	Opened  EventKind = iota + 1
	Closed            // Node; Err, nil if the client ended the stream
	Pushed            // Node, Type, Version, Names
	Acked             // Node, Type, Version, Left
	Nacked            // Node, Type, Version, Names, Reason, Left
	Refused           // Node, Type, Names
)

// String returns the kind as one word.
func (k EventKind) String() string {
	names := [...]string{"opened", "closed", "pushed", "acked", "nacked", "refused"}
	if k < Opened || int(k) > len(names) {
		return "unknown"
	}
	return names[k-1]
}

// Event describes something that happened on a stream. Node, Names and Reason come from
// the client: Reason and the Names of Nacked and Refused are truncated and escaped.
// None of them may become a metric label.
type Event[C any] struct {
	Kind    EventKind
	Stream  uint64 // unique within an engine; 0 for a fetch
	Caller  C
	Node    string // node.id of the first request, truncated and escaped
	Type    string // type URL
	Version string
	Names   []string // for Pushed: those new to the client
	Reason  string
	Left    int // resources that the client refuses by themselves; the others of the type are served
	Err     error
}
