package xds

import (
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// sotw is the state-of-the-world protocol of one stream: requests and changes in,
// responses out. It does no I/O and has no clock and no lock.
//
// The nonce decides what a request means (Envoy's xDS protocol, "ACK/NACK and resource
// type instance version"): without a nonce, or before any response, it adds names; with
// the current nonce it is an ACK or NACK and its list replaces the names; with any
// other nonce it is stale and ignored.
type sotw struct{ session }

// request handles one client message. An error is a status that ends the stream.
func (m *sotw) request(req *discovery.DiscoveryRequest) (step, error) {
	st, err := m.begin(req.GetNode(), req.GetTypeUrl())
	if err != nil || st.unserved != "" {
		return st, err
	}
	if err := m.bound(len(req.GetResourceNames())); err != nil {
		return step{}, err
	}
	t := &m.types[st.typ]
	if !t.begun {
		t.begun, t.brought = true, req.GetVersionInfo() != ""
	}
	switch nonce := req.GetResponseNonce(); {
	case t.seq == 0 || nonce == "":
		m.take(req, &st)
	case nonce != m.nonce(st.typ, t.seq):
		m.stale(req, &st)
	default:
		m.out = max(m.out, t.seq) // a response that was answered has left, even before Send has returned
		m.answer(req, &st)
		m.replace(req.GetResourceNames(), &st)
	}
	return st, m.bound(t.asked)
}

// take adds names. A client that lists a name again with neither nonce nor version has
// forgotten the resource, or never took it, and is answered as if it had just connected. (A
// response that has not left yet is not repeated: requests and responses cross.)
func (m *sotw) take(req *discovery.DiscoveryRequest, st *step) {
	t := &m.types[st.typ]
	forgot := req.GetVersionInfo() == "" && req.GetResponseNonce() == ""
	if t.wild == nil && t.asksForAll(req.GetResourceNames()) {
		t.all(nil, st)
	}
	for name := range m.names(req.GetResourceNames(), st) {
		e := t.take(name, st)
		if forgot && e.sent != nil && e.seq <= m.out {
			t.resend(e)
			st.woken = true
		}
	}
	t.explicit = t.explicit || len(req.GetResourceNames()) > 0
}

// stale handles only a NACK in a stale request: the response it refers to was rejected
// although another was sent since.
func (m *sotw) stale(req *discovery.DiscoveryRequest, st *step) {
	if seq := m.number(st.typ, req.GetResponseNonce()); req.GetErrorDetail() != nil {
		m.refusal(seq, req.GetErrorDetail(), st)
	}
}

// answer handles the ACK or NACK of the last response. A request with another version
// than that response's only changes the names.
func (m *sotw) answer(req *discovery.DiscoveryRequest, st *step) {
	t := &m.types[st.typ]
	switch {
	case req.GetErrorDetail() != nil:
		m.refusal(t.seq, req.GetErrorDetail(), st)
	case req.GetVersionInfo() == t.version:
		m.acknowledgement(t.seq, st)
	}
}

// replace makes names the whole list. Marks separate listed entries from others without a
// second set of thousands of names.
func (m *sotw) replace(names []string, st *step) {
	t, mark, listed := &m.types[st.typ], m.next(), 0
	for name := range m.names(names, st) {
		e := t.take(name, st)
		if e.mark != mark {
			e.mark = mark
			listed++
		}
	}
	m.wildcard(names, st)
	if listed == t.asked {
		return
	}
	for _, e := range t.entries {
		if e.named && e.mark != mark {
			m.leave(e, st)
		}
	}
}

// wildcard subscribes to or unsubscribes from the wildcard, by the whole list of names.
func (m *sotw) wildcard(names []string, st *step) {
	t := &m.types[st.typ]
	switch all := t.asksForAll(names); {
	case all && t.wild == nil:
		t.all(nil, st)
	case !all:
		t.none(st)
	}
	t.explicit = t.explicit || len(names) > 0
}

// leave removes a name. A client with a wildcard cannot know whether the list covers
// the name.
func (m *sotw) leave(e *entry, st *step) {
	t := &m.types[st.typ]
	if t.disclaim(e) {
		return
	}
	st.dropped = append(st.dropped, e)
	if t.wild != nil && e.sent != nil {
		t.lose(e.name)
		st.woken = st.woken || t.owed
	}
}

// respond builds the next response from the source's answers; it returns false if there
// is nothing to send. A refused resource stays with a client that has it.
func (m *sotw) respond(typ int, found []lookup, now time.Time) (*discovery.DiscoveryResponse, batch, bool) {
	b, ok := m.choose(typ, found, now)
	if !ok {
		return nil, b, false
	}
	t := &m.types[typ]
	response := &discovery.DiscoveryResponse{VersionInfo: b.version, TypeUrl: t.policy.url, Nonce: m.nonce(typ, t.seq)}
	if b.whole != nil {
		response.Resources = b.whole.bodies
	} else {
		response.Resources = bodies(b.resources)
	}
	return response, b, true
}

func bodies(resources []*Resource) []*anypb.Any {
	out := make([]*anypb.Any, len(resources))
	for i, r := range resources {
		out[i] = r.Body
	}
	return out
}
