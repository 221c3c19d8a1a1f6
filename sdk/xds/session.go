package xds

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// session is what both dialects have of one stream: the node, the types with
// their subscriptions, and the numbers of responses.
type session struct {
	limits  Limits
	prefix  string // of nonces, different for each start of an engine
	implied string // the type of a request that names none
	types   []subscription
	node    string
	started bool
	seq     uint64
}

// newSession returns the session of a stream of the types urls, in the order in
// which their changes are pushed.
func newSession(urls []string, implied, prefix string, limits Limits, hold time.Duration) session {
	s := session{limits: limits, prefix: prefix, implied: implied, types: make([]subscription, len(urls))}
	for i, url := range urls {
		s.types[i].url, s.types[i].hold = url, hold
	}
	return s
}

// open looks at the node, which counts in the first request only.
func (s *session) open(node *core.Node) error {
	if s.started {
		return nil
	}
	s.started = true
	id := node.GetId()
	switch {
	case len(id) > s.limits.MaxNodeID:
		return status.Errorf(codes.InvalidArgument, "node.id has %d bytes, at most %d are allowed", len(id), s.limits.MaxNodeID)
	case id == "" && s.limits.RequireNode:
		return status.Error(codes.InvalidArgument, "the first request must have a node.id")
	}
	s.node = id
	return nil
}

// typeOf returns the index of a type, or -1 for one that is not served, which is
// ignored on a stream of several types: the protocol has no answer to it.
func (s *session) typeOf(url string) (int, error) {
	if url == "" {
		url = s.implied
	}
	typ := slices.IndexFunc(s.types, func(t subscription) bool { return t.url == url })
	switch {
	case url == "":
		return 0, status.Error(codes.InvalidArgument, "type_url is required on an aggregated stream")
	case s.implied != "" && url != s.implied:
		return 0, status.Errorf(codes.InvalidArgument, "type_url is %q, this service has %q only", clip(url), s.implied)
	}
	return typ, nil
}

// bound refuses more names than a stream may hold.
func (s *session) bound(names int) error {
	if names <= s.limits.MaxNames {
		return nil
	}
	return status.Errorf(codes.ResourceExhausted, "a stream may hold %d names of a type, this one asks for %d", s.limits.MaxNames, names)
}

// names yields the names that can be subscribed to. None and "*" are no
// subscription; a name that is too long is refused like one that is unknown.
func (s *session) names(asked []string, st *step) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, name := range asked {
			switch {
			case name == "" || name == "*":
			case len(name) > s.limits.MaxNameLength:
				st.refused = append(st.refused, name)
			case !yield(name):
				return
			}
		}
	}
}

// next returns a number that no request and no response bears.
func (s *session) next() uint64 {
	s.seq++
	return s.seq
}

// nonce returns the nonce of a response of a type.
func (s *session) nonce(typ int, seq uint64) string {
	return s.noncePrefix(typ) + strconv.FormatUint(seq, 36)
}

func (s *session) noncePrefix(typ int) string { return s.prefix + "-" + strconv.Itoa(typ) + "-" }

// number returns which response of a type bears the nonce, zero for none of ours.
func (s *session) number(typ int, nonce string) uint64 {
	digits, ours := strings.CutPrefix(nonce, s.noncePrefix(typ))
	seq, err := strconv.ParseUint(digits, 36, 64)
	if !ours || err != nil || seq > s.types[typ].seq {
		return 0
	}
	return seq
}

// begin takes what every request has: its node and its type.
func (s *session) begin(node *core.Node, url string) (step, error) {
	if err := s.open(node); err != nil {
		return step{}, err
	}
	typ, err := s.typeOf(url)
	if err != nil {
		return step{}, err
	}
	if typ < 0 {
		return step{unserved: clip(url)}, nil
	}
	return step{typ: typ, url: s.types[typ].url}, nil
}

// refusal takes the refusal of response seq.
func (s *session) refusal(seq uint64, detail *rpcstatus.Status, st *step) {
	t := &s.types[st.typ]
	if st.names, st.nacked = t.nack(seq); !st.nacked {
		return
	}
	st.reason = clip(detail.GetMessage())
	if seq == t.seq {
		st.version = t.version
	}
}

// acknowledgement takes the acknowledgement of response seq.
func (s *session) acknowledgement(seq uint64, st *step) {
	t := &s.types[st.typ]
	st.acked = t.ack(seq)
	st.woken = st.woken || len(t.dirty) > 0
	if seq == t.seq {
		st.version = t.version
	}
}

// changed marks a name for another look.
func (s *session) changed(typ int, name string) { s.types[typ].changed(name) }

// due returns what to look up next: of one type, in the order of the types.
func (s *session) due(now time.Time) (typ int, names []string) {
	for i := range s.types {
		if names := s.types[i].due(now); len(names) > 0 {
			return i, names
		}
	}
	return 0, nil
}

// choose takes the source's answers and returns what the next response says; false
// where there is nothing to say. A response that only removes has no version.
func (s *session) choose(typ int, found []lookup, now time.Time, removes bool) (batch, bool) {
	t := &s.types[typ]
	seq := s.seq + 1
	b := t.choose(found, seq, now)
	if len(b.resources) == 0 && (!removes || len(b.refused) == 0) {
		return b, false
	}
	s.seq, t.seq = seq, seq
	b.version = versionOf(b.resources)
	t.version = b.version
	return b, true
}

// wake returns when due has something to say without a change; zero for never.
func (s *session) wake() (at time.Time) {
	for i := range s.types {
		if r := s.types[i].release; !r.IsZero() && (at.IsZero() || r.Before(at)) {
			at = r
		}
	}
	return at
}

// nodeID returns the node.id of the first request.
func (s *session) nodeID() string { return s.node }

// all yields the entries of all types.
func (s *session) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for i := range s.types {
			for e := range s.types[i].all() {
				if !yield(e) {
					return
				}
			}
		}
	}
}
