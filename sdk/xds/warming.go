package xds

import (
	"slices"
	"time"
)

// warming is a response with resources that a client warms by others, which it asks for
// before it acknowledges the response: clusters, by their endpoints. What comes after
// them (listeners, routes) waits for the acknowledgement. It would overtake the endpoints
// of a new cluster otherwise, and Envoy answers with 503 for a route whose cluster is not
// warm.
type warming struct {
	typ   int
	seq   uint64
	by    []string  // the types, which do not wait
	until time.Time // waited for until then at most; zero: nothing warms
}

// warms notes a response of the type. The first bound stands, so that clusters that
// change again and again do not starve what comes after them.
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

// settle ends the wait where the client has answered, or where its bound has passed.
func (s *session) settle(now time.Time) {
	t := &s.types[s.warming.typ]
	if max(t.acked, t.nacked) >= s.warming.seq || !now.Before(s.warming.until) {
		s.warming = warming{}
	}
}

// waits tells whether a type waits for what warms.
func (s *session) waits(typ int) bool {
	w := &s.warming
	return !w.until.IsZero() && typ > w.typ && !slices.Contains(w.by, s.types[typ].policy.url)
}

// answers tells whether an answer of the client to that type may end a wait.
func (s *session) answers(typ int) bool { return !s.warming.until.IsZero() && typ == s.warming.typ }
