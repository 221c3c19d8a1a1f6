package xds

// EventKind is the kind of an [Event].
type EventKind int

// The event kinds, with the fields of [Event] each sets besides Stream, Delta, Caller and
// Client.Node.
const (
	Opened  EventKind = iota + 1 // no other, and no Client.Node
	Closed                       // Err, nil if the client ended the stream
	Pushed                       // TypeURL, Version, Names
	Acked                        // TypeURL, Version, Left
	Nacked                       // TypeURL, Version, Client.Names, Client.Message, Left
	Refused                      // TypeURL, Client.Names
	Cleared                      // TypeURL, Left: a resource that the client refused is gone, or no longer asked for
)

// String returns the kind as one word, which may be a metric's label.
func (k EventKind) String() string {
	names := [...]string{"opened", "closed", "pushed", "acked", "nacked", "refused", "cleared"}
	if k < Opened || int(k) > len(names) {
		return "unknown"
	}
	return names[k-1]
}

// Event describes something that happened on a stream. Kind and TypeURL have few values, and may
// be a metric's labels; the other fields may not.
type Event[C any] struct {
	Kind    EventKind
	Stream  uint64 // unique within an engine; 0 for a fetch
	Delta   bool   // the stream is incremental
	Caller  C
	TypeURL string   // one that is served
	Version string   // of the response
	Names   []string // of the resources in the response: those new to the client
	Client  ClientText
	Left    int // resources that the client refuses by themselves; the others of the type are served
	Err     error
}

// ClientText is what a client sent, truncated and escaped. A client can send any number of
// different texts, so that none may become a metric's label.
type ClientText struct {
	Node    string   // node.id of the first request
	Names   []string // of a request
	Message string   // error_detail of a NACK
}
