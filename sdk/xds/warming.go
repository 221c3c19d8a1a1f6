package xds

import (
	"slices"
	"time"
)

// warming is a response with resources that Envoy warms with others, requested before
// it acknowledges the response: clusters with their endpoints. Later types (listeners,
// routes) wait for the ACK. Otherwise they would overtake the endpoints of a new
// cluster, and Envoy answers 503 for a route to a cluster that is not warm.
type warming struct {
	typ   int
	seq   uint64
	by    []string  // the types that warm it, which do not wait
	until time.Time // deadline of the wait; zero: nothing warms
}

// warms records a response of the type. The first deadline stands, so that clusters
// that keep changing do not starve the types after them.
func (s *session) warms(typ int, seq uint64, resources []*Resource, now time.Time) {
	w := &s.warming
	for _, r := range resources {
		for _, ref := range r.Refreshes {
			if !slices.Contains(w.by, ref.Type) {
				w.by = append(w.by, ref.Type)
			}
			w.typ, w.seq = typ, seq
			if w.until.IsZero() {
				w.until = now.Add(s.types[typ].policy.hold)
			}
		}
	}
}

// settle ends the wait once the client has answered or the deadline has passed.
func (s *session) settle(now time.Time) {
	t := &s.types[s.warming.typ]
	if max(t.acked, t.nacked) >= s.warming.seq || !now.Before(s.warming.until) {
		s.warming = warming{}
	}
}

// waits reports whether a type waits for the warming one.
func (s *session) waits(typ int) bool {
	w := &s.warming
	return !w.until.IsZero() && typ > w.typ && !slices.Contains(w.by, s.types[typ].policy.url)
}

// answers reports whether a client's answer for typ can end a wait.
func (s *session) answers(typ int) bool { return !s.warming.until.IsZero() && typ == s.warming.typ }
