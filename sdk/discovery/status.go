package discovery

import (
	"slices"
	"time"
)

// Status is what a server is doing, in an order that does not change by itself. It has no
// key and no token.
type Status struct {
	// NotReady is why streams are not answered yet, empty where they are.
	NotReady string `json:"not_ready,omitempty"`
	// Draining: the server is shutting down.
	Draining bool `json:"draining,omitempty"`
	// Streams are in the order in which they were opened.
	Streams []StreamStatus `json:"streams"`
}

// StreamStatus is one stream or fetch. What the client says of itself is cut to 256
// bytes and escaped.
type StreamStatus struct {
	Number  uint64 `json:"number"`
	Service string `json:"service"`
	Peer    string `json:"peer"`
	// Identity was verified, by a credential of that kind.
	Identity string `json:"identity"`
	Kind     string `json:"kind"`
	Cluster  string `json:"cluster"`
	// Node is the node id, empty before the first request.
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
	// Expires is when the server ends it.
	Expires time.Time    `json:"expires"`
	Types   []TypeStatus `json:"types"`
}

// TypeStatus is what a stream has of one type. A version is of the content, and empty
// where nothing but removals was sent.
type TypeStatus struct {
	Type string `json:"type"`
	// Subscribed is how many names the stream watches.
	Subscribed int    `json:"subscribed"`
	Pushes     uint64 `json:"pushes"`
	Sent       string `json:"sent"`
	Acked      string `json:"acked"`
	// Refused is the last refusal, which a later acknowledgement does not hide.
	Refused *Refusal `json:"refused,omitempty"`
}

// Refusing tells whether the client has refused what it was sent last, so that it works
// with something older.
func (t TypeStatus) Refusing() bool {
	return t.Refused != nil && t.Refused.Version == t.Sent && t.Acked != t.Sent
}

// Refusal is a version that a client has not taken.
type Refusal struct {
	Version string    `json:"version"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// Status returns what the server is doing now.
func (s *Server) Status() Status {
	out := Status{Draining: s.roster.isDraining(), Streams: []StreamStatus{}}
	if err := s.cfg.Ready(); err != nil {
		out.NotReady = shown(err.Error())
	}
	for _, of := range s.roster.all() {
		out.Streams = append(out.Streams, s.statusOf(of))
	}
	return out
}

func (s *Server) statusOf(of *session) StreamStatus {
	ends := s.roster.plan(of)
	of.mu.Lock()
	defer of.mu.Unlock()
	out := StreamStatus{
		Number: of.number, Service: of.service, Peer: of.peer,
		Identity: shown(of.identity.String()), Kind: string(of.identity.Kind), Cluster: shown(of.caller.Cluster),
		Node: shown(of.caller.Node.ID), Since: of.since.UTC(), Expires: ends.UTC(), Types: []TypeStatus{},
	}
	for i, p := range of.types {
		if p.subscribed == 0 && p.pushes == 0 {
			continue
		}
		out.Types = append(out.Types, p.status(s.urls[i]))
	}
	return out
}

func (p *progress) status(url string) TypeStatus {
	return TypeStatus{Type: url, Subscribed: p.subscribed, Pushes: p.pushes, Sent: p.sent, Acked: p.acked, Refused: p.refused}
}

// index returns which type that is, -1 for none.
func (s *Server) index(url string) int { return slices.Index(s.urls, url) }
