package discovery

import (
	"slices"
	"time"
)

// Status is a snapshot of a server, in stable order. It contains no keys or tokens.
type Status struct {
	// NotReady is why streams are not served yet; empty if they are.
	NotReady string `json:"not_ready,omitempty"`
	// Draining means that the server is shutting down.
	Draining bool `json:"draining,omitempty"`
	// Streams are in the order in which they were opened.
	Streams []StreamStatus `json:"streams"`
}

// StreamStatus is one stream or fetch. Text from the client is truncated to 256 bytes
// and escaped.
type StreamStatus struct {
	Number  uint64 `json:"number"`
	Service string `json:"service"`
	Peer    string `json:"peer"`
	// Identity was verified with a credential of the kind below.
	Identity string `json:"identity"`
	Kind     string `json:"kind"`
	Cluster  string `json:"cluster"`
	// Node is the node id; empty before the first request.
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
	// Expires is when the server will end the stream.
	Expires time.Time    `json:"expires"`
	Types   []TypeStatus `json:"types"`
}

// TypeStatus is the state of one type on a stream. A version identifies content; it is
// empty if only removals were sent.
type TypeStatus struct {
	Type string `json:"type"`
	// Subscribed is how many names the stream watches.
	Subscribed int    `json:"subscribed"`
	Pushes     uint64 `json:"pushes"`
	Sent       string `json:"sent"`
	Acked      string `json:"acked"`
	// Refused is the last rejection; a later ACK does not clear it. It is nil again once all that
	// was rejected is removed or no longer subscribed to.
	Refused *Refusal `json:"refused,omitempty"`
	// Rejected is how many resources the client rejects, each for itself. It keeps the
	// versions it has of them, and gets all others.
	Rejected int `json:"rejected,omitempty"`
}

// Refusing reports whether the client rejected a resource or the last response, and so runs
// with an older version.
func (t TypeStatus) Refusing() bool {
	return t.Refused != nil && (t.Rejected > 0 || t.Refused.Version == t.Sent && t.Acked != t.Sent)
}

// Refusal is a version that a client rejected.
type Refusal struct {
	// Name is the resource that was rejected; empty if there were several in the response.
	Name    string    `json:"name,omitempty"`
	Version string    `json:"version"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// Text returns the reason with the name of the resource.
func (r Refusal) Text() string {
	if r.Name == "" {
		return r.Reason
	}
	return r.Name + ": " + r.Reason
}

// Status returns a snapshot of the server.
func (s *Server) Status() Status {
	out := Status{Draining: s.sessions.isDraining(), Streams: []StreamStatus{}}
	if err := s.cfg.Ready(); err != nil {
		out.NotReady = shown(err.Error())
	}
	for _, of := range s.sessions.all() {
		out.Streams = append(out.Streams, s.statusOf(of))
	}
	return out
}

func (s *Server) statusOf(of *session) StreamStatus {
	ends := s.sessions.plan(of)
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
	return TypeStatus{Type: url, Subscribed: p.subscribed, Pushes: p.pushes, Sent: p.sent, Acked: p.acked, Refused: p.refused, Rejected: p.rejected}
}

// index returns the index of a type URL, or -1 if it is not served.
func (s *Server) index(url string) int { return slices.Index(s.urls, url) }
