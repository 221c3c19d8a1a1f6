package xds

import (
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// delta is the incremental protocol of one stream: requests and changes go in,
// responses come out. It has no I/O, no clock and no lock.
//
// A request says what to add to the names and what to take off, whatever its nonce;
// a nonce acknowledges or refuses the response that bears it. A name that is unknown,
// or is no longer known, is in removed_resources, once; subscribed again, a name is
// told again, as the client may have dropped it before its unsubscribing went out.
type delta struct{ session }

// request takes one message of the client. An error is a status that ends the stream.
func (m *delta) request(req *discovery.DeltaDiscoveryRequest) (step, error) {
	st, err := m.begin(req.GetNode(), req.GetTypeUrl())
	if err != nil || st.unserved != "" {
		return st, err
	}
	subscribe, unsubscribe := req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe()
	if err := m.bound(max(len(subscribe), len(unsubscribe), len(req.GetInitialResourceVersions()))); err != nil {
		return step{}, err
	}
	m.answer(req, &st)
	// In this order, what is in both lists is subscribed to afresh.
	m.unsubscribe(unsubscribe, &st)
	m.subscribe(subscribe, m.brought(st.typ, req), &st)
	return st, m.bound(len(m.types[st.typ].entries))
}

// answer takes the acknowledgement or refusal of any response of the stream: unlike
// in the other dialect, a nonce does not become stale.
func (m *delta) answer(req *discovery.DeltaDiscoveryRequest, st *step) {
	seq := m.number(st.typ, req.GetResponseNonce())
	switch {
	case seq == 0:
	case req.GetErrorDetail() != nil:
		m.refusal(seq, req.GetErrorDetail(), st)
	default:
		m.acknowledgement(seq, st)
	}
}

// brought returns the versions that the client has from an earlier stream. They
// count in the first request of a type only, and for the names that it subscribes to.
func (m *delta) brought(typ int, req *discovery.DeltaDiscoveryRequest) map[string]string {
	t := &m.types[typ]
	if t.begun {
		return nil
	}
	t.begun = true
	return req.GetInitialResourceVersions()
}

func (m *delta) unsubscribe(names []string, st *step) {
	t := &m.types[st.typ]
	for _, name := range names {
		if e := t.entries[name]; e != nil {
			st.dropped = append(st.dropped, e)
			t.drop(name)
		}
	}
}

func (m *delta) subscribe(names []string, brought map[string]string, st *step) {
	t := &m.types[st.typ]
	for name := range m.names(names, st) {
		e, isNew := t.add(name)
		switch {
		case isNew:
			e.known = brought[name]
			st.added = append(st.added, e)
		case e.has() || e.refused:
			t.resend(e)
			st.woken = true
		}
	}
}

// respond turns the source's answers into the next response; false where there is
// nothing to say.
func (m *delta) respond(typ int, found []lookup, now time.Time) (*discovery.DeltaDiscoveryResponse, batch, bool) {
	b, ok := m.choose(typ, found, now, true)
	if !ok {
		return nil, b, false
	}
	t := &m.types[typ]
	for _, name := range b.refused {
		t.forget(t.entries[name])
	}
	response := &discovery.DeltaDiscoveryResponse{
		SystemVersionInfo: b.version, TypeUrl: t.url, Nonce: m.nonce(typ, t.seq),
		RemovedResources: b.refused,
	}
	for _, r := range b.resources {
		response.Resources = append(response.Resources, &discovery.Resource{Name: r.Name, Version: r.Version, Resource: r.Body})
	}
	return response, b, true
}
