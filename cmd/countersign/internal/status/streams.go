package status

import (
	"cmp"
	"maps"
	"slices"
	"time"

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
	case xds.Acked:
		s.events.Acked++
		stream.Acked++
	case xds.Nacked:
		s.events.Nacked++
		stream.Nacked++
	case xds.Refused:
		s.events.Refused += len(e.Client.Names)
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
		stream = &Stream{ID: e.Stream, Caller: e.Caller.String(), Since: time.Now()}
		if e.Stream != 0 && len(s.open) < maxKept {
			s.open[e.Stream] = stream
		}
	}
	if e.Client.Node != "" && stream.Node == "" { // a stream has one node
		stream.Node = wire.CleanText(e.Client.Node, "")
	}
	return stream
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
