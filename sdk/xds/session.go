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

	"github.com/countersign-dev/countersign/internal/text"
)

// session is the state of one stream that both dialects share: the node, the types with
// their subscriptions, and the response numbers.
type session struct {
	limits  Limits
	prefix  string // of nonces, unique per engine start
	implied string // the type of a request without one
	types   []subscription
	node    string
	started bool
	seq     uint64
	out     uint64 // the last response that was handed to the transport
	warming warming
}

// newSession returns the session of a stream whose types have these policies, in push
// order.
func newSession(policies []policy, implied, prefix string, limits Limits) session {
	s := session{limits: limits, prefix: prefix, implied: implied, types: make([]subscription, len(policies))}
	for i := range policies {
		s.types[i].policy = &policies[i]
	}
	return s
}

// open checks the node of the first request, the only one that counts.
func (s *session) open(node *core.Node) error {
	s.started = true
	id := node.GetId()
	switch {
	case len(id) > s.limits.MaxNodeID:
		return status.Errorf(codes.InvalidArgument, "node.id has %d bytes, at most %d are allowed", len(id), s.limits.MaxNodeID)
	case id == "" && s.limits.RequireNode:
		return status.Error(codes.InvalidArgument, "the first request must have a node.id")
	}
	s.node = text.Clean(id)
	return nil
}

// typeOf returns the index of a type, or -1 for a type not served. On a stream of
// several types that is ignored: the protocol has no answer for it.
func (s *session) typeOf(url string) (int, error) {
	if url == "" {
		url = s.implied
	}
	typ := slices.IndexFunc(s.types, func(t subscription) bool { return t.policy.url == url })
	switch {
	case url == "":
		return 0, status.Error(codes.InvalidArgument, "type_url is required on an aggregated stream")
	case s.implied != "" && url != s.implied:
		return 0, status.Errorf(codes.InvalidArgument, "type_url is %.256q, this service has %q only", url, s.implied)
	}
	return typ, nil
}

// bound limits the number of names on a stream.
func (s *session) bound(names int) error {
	if names <= s.limits.MaxNames {
		return nil
	}
	return status.Errorf(codes.ResourceExhausted, "a stream may hold %d names of a type, this one asks for %d", s.limits.MaxNames, names)
}

// names yields the names that can be subscribed to. The empty name and "*" are skipped;
// a name that is too long is refused like an unknown one.
func (s *session) names(asked []string, st *step) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, name := range asked {
			switch {
			case name == "" || name == star:
			case len(name) > s.limits.MaxNameLength:
				st.refused = append(st.refused, name)
			case !yield(name):
				return
			}
		}
	}
}

// next returns a number that no request or response has used.
func (s *session) next() uint64 {
	s.seq++
	return s.seq
}

// nonce returns the nonce of a response of a type.
func (s *session) nonce(typ int, seq uint64) string {
	return s.noncePrefix(typ) + strconv.FormatUint(seq, 36)
}

func (s *session) noncePrefix(typ int) string { return s.prefix + "-" + strconv.Itoa(typ) + "-" }

// number returns the response number in a nonce of a type, or zero if it is not ours.
func (s *session) number(typ int, nonce string) uint64 {
	digits, ours := strings.CutPrefix(nonce, s.noncePrefix(typ))
	seq, err := strconv.ParseUint(digits, 36, 64)
	if !ours || err != nil || seq > s.types[typ].seq {
		return 0
	}
	return seq
}

// begin handles what every request has: its node and its type.
func (s *session) begin(node *core.Node, url string) (step, error) {
	var st step
	if !s.started {
		if err := s.open(node); err != nil {
			return step{}, err
		}
		st.first, st.node = true, node
	}
	typ, err := s.typeOf(url)
	switch {
	case err != nil:
		return step{}, err
	case typ < 0:
		st.unserved = text.Clean(url)
	default:
		st.typ, st.url = typ, s.types[typ].policy.url
	}
	return st, nil
}

// refusal handles the NACK of response seq.
func (s *session) refusal(seq uint64, detail *rpcstatus.Status, st *step) {
	t := &s.types[st.typ]
	st.trying = t.trial != nil && t.trial.seq == seq
	if st.names, st.atFault, st.nacked = t.nack(seq); !st.nacked {
		return
	}
	st.left = t.left()
	st.woken = st.woken || s.answers(st.typ) || t.tries()
	st.reason = text.Clean(detail.GetMessage())
	if seq == t.seq {
		st.version = t.version
	}
}

// acknowledgement handles the ACK of response seq.
func (s *session) acknowledgement(seq uint64, st *step) {
	t := &s.types[st.typ]
	st.acked = t.ack(seq)
	st.left = t.left()
	st.woken = st.woken || len(t.dirty) > 0 || s.answers(st.typ) || t.tries()
	if seq == t.seq {
		st.version = t.version
	}
}

// changed marks a name for another lookup.
func (s *session) changed(typ int, name string) { s.types[typ].changed(name) }

// relist schedules another listing of a type.
func (s *session) relist(typ int) { s.types[typ].relist() }

// listed applies a new list of a type, which may have more if it is not whole.
func (s *session) listed(typ int, names []string, whole bool) (added, dropped []*entry) {
	return s.types[typ].listed(names, whole, s.next())
}

// due returns the next task, going through the types in order.
func (s *session) due(now time.Time) (task, bool) {
	s.out = s.seq // the sender asks for more once it has sent
	s.settle(now)
	for i := range s.types {
		t := &s.types[i]
		if s.waits(i) {
			continue
		}
		if t.wild != nil && t.wild.due {
			t.wild.due = false
			return task{typ: i, list: true}, true
		}
		if names := t.try(); len(names) > 0 {
			return task{typ: i, names: names}, true
		}
		if names, ok := t.due(now); ok {
			return task{typ: i, names: names}, true
		}
	}
	return task{}, false
}

// choose turns the source's answers into the content of the next response; it returns
// false if there is none. A response that only removes names has no version.
func (s *session) choose(typ int, found []lookup, now time.Time) (batch, bool) {
	t := &s.types[typ]
	if t.withheld(found) {
		return batch{}, false
	}
	seq := s.seq + 1
	b := t.choose(found, seq, now)
	if !t.speaks(&b, len(found)) {
		return b, false
	}
	s.seq, t.seq, t.owed = seq, seq, false
	if b.whole = t.whole(); b.whole != nil {
		b.version = b.whole.version
	} else {
		b.version = VersionOf(b.resources)
	}
	t.version = b.version
	s.refresh(typ, b.resources)
	s.warms(typ, seq, b.resources, now)
	return b, true
}

// refresh schedules a resend of what resources refresh, for types after theirs.
func (s *session) refresh(typ int, resources []*Resource) {
	for _, r := range resources {
		for _, ref := range r.Refreshes {
			for i := typ + 1; i < len(s.types); i++ {
				t := &s.types[i]
				if e := t.entries[ref.Name]; t.policy.url == ref.Type && e != nil && e.has() {
					t.repeat(e)
				}
			}
		}
	}
}

// wake returns when due has work without a change; zero for never.
func (s *session) wake() (at time.Time) {
	at = s.warming.until
	for i := range s.types {
		if r := s.types[i].release; !r.IsZero() && (at.IsZero() || r.Before(at)) {
			at = r
		}
	}
	return at
}

// nodeID returns the node.id of the first request, as logs and events have it.
func (s *session) nodeID() string { return s.node }

// stop stops all watches.
func (s *session) stop() {
	for i := range s.types {
		t := &s.types[i]
		if t.wild != nil && t.wild.stop != nil {
			t.wild.stop()
		}
		for _, e := range t.entries {
			if e.stop != nil {
				e.stop()
			}
		}
	}
}
