package status

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ondemand/names"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

const (
	maxStreams = 50     // shown
	maxKept    = 10_000 // remembered
)

// Stream is one open stream.
type Stream struct {
	ID     uint64    `json:"id"`
	Caller string    `json:"caller"`
	Node   string    `json:"node,omitempty"` // as reported by the client; bounded and escaped
	Since  time.Time `json:"since"`
	Pushed int       `json:"pushed"`
	Acked  int       `json:"acked"`
	Nacked int       `json:"nacked"`
	// LastPush is zero before the first.
	LastPush time.Time `json:"last_push,omitzero"`
	Delta    bool      `json:"delta,omitempty"` // incremental

	name  string // the first of a host that was sent or refused, else the last
	names int    // up to 2
}

// operator is the node of `countersign secrets`, which a person runs.
const operator = "countersign-secrets"

// has notes names that the client asked for.
func (s *Stream) has(names []string) {
	for _, name := range names {
		if s.names < 2 && name != s.name {
			s.names++
		}
		if !isHost(s.name) {
			s.name = name
		}
	}
}

// Events counts the events of all streams, including closed ones.
type Events struct {
	Opened  int `json:"opened"`
	Closed  int `json:"closed"`
	Pushed  int `json:"pushed"`
	Acked   int `json:"acked"`
	Nacked  int `json:"nacked"`
	Refused int `json:"refused"` // names
}

type streams struct {
	open   map[uint64]*Stream
	events Events
}

// Stream records an event of the SDS server.
func (r *Recorder) Stream(e xds.Event[secret.Caller]) {
	r.mu.Lock()
	r.streams.note(e)
	r.mu.Unlock()
	if e.Kind == xds.Nacked {
		r.add(Error{At: time.Now(), Where: "stream of " + e.Caller.ID, Reason: nacked.reason, Text: e.Client.Message, Does: nacked.does, Do: nacked.do})
	}
}

func (s *streams) note(e xds.Event[secret.Caller]) {
	stream := s.of(e)
	switch e.Kind {
	case xds.Opened:
		s.events.Opened++
	case xds.Closed:
		s.events.Closed++
		delete(s.open, e.Stream)
	case xds.Pushed:
		s.events.Pushed++
		stream.Pushed++
		stream.LastPush = time.Now()
		stream.has(e.Names)
	case xds.Acked:
		s.events.Acked++
		stream.Acked++
	case xds.Nacked:
		s.events.Nacked++
		stream.Nacked++
	case xds.Refused:
		s.events.Refused += len(e.Client.Names)
		stream.has(e.Client.Names)
	}
}

// of returns the stream of an event. Fetches, and streams beyond the limit, are not
// remembered.
func (s *streams) of(e xds.Event[secret.Caller]) *Stream {
	if s.open == nil {
		s.open = map[uint64]*Stream{}
	}
	stream := s.open[e.Stream]
	if stream == nil {
		stream = &Stream{ID: e.Stream, Caller: e.Caller.String(), Since: time.Now(), Delta: e.Delta}
		if e.Stream != 0 && len(s.open) < maxKept {
			s.open[e.Stream] = stream
		}
	}
	if e.Client.Node != "" && stream.Node == "" { // a stream has one node
		stream.Node = wire.CleanText(e.Client.Node, "")
	}
	return stream
}

// onDemand counts the streams that have names of hosts which are not configured.
func (s *streams) onDemand(configured []secret.Status) (n OnDemandStreams) {
	known := map[string]bool{}
	for _, c := range configured {
		known[c.Name] = true
	}
	for _, stream := range s.open {
		switch {
		case known[stream.name] || !isHost(stream.name) || stream.Node == operator:
			continue
		case !stream.Delta:
			n.StateOfTheWorld++
		}
		if stream.names == 1 {
			n.Single++
		}
	}
	return n
}

// isHost reports whether a name is that of a host, and not one of a secret from files or SPIRE.
func isHost(name string) bool {
	if !strings.Contains(name, ".") {
		return false
	}
	_, err := names.Fold(name)
	return err == nil
}

// list returns the newest streams.
func (s *streams) list() []Stream {
	ids := slices.SortedFunc(maps.Keys(s.open), func(a, b uint64) int { return cmp.Compare(b, a) })
	list := make([]Stream, 0, min(maxStreams, len(ids)))
	for _, id := range ids[:cap(list)] {
		list = append(list, *s.open[id])
	}
	return list
}
