package xds

import (
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// delta is the incremental protocol of one stream: requests and changes in, responses
// out. It does no I/O and has no clock and no lock.
//
// A request adds and removes names regardless of its nonce; the nonce acknowledges or
// rejects the response that carried it. A name that is unknown, or has become unknown,
// appears in removed_resources once. A name subscribed to again is sent again, because
// the client may have dropped it before its unsubscription went out.
type delta struct{ session }

// request handles one client message. An error is a status that ends the stream.
func (m *delta) request(req *discovery.DeltaDiscoveryRequest) (step, error) {
	st, err := m.begin(req.GetNode(), req.GetTypeUrl())
	if err != nil || st.unserved != "" {
		return st, err
	}
	subscribe, unsubscribe := req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe()
	if err := m.bound(max(len(subscribe), len(unsubscribe), len(req.GetInitialResourceVersions()))); err != nil {
		return step{}, err
	}
	if err := m.bound(m.after(&m.types[st.typ], subscribe, unsubscribe)); err != nil {
		return step{}, err // before anything has changed
	}
	m.answer(req, &st)
	// In this order, a name in both lists is subscribed to afresh.
	brought := m.brought(st.typ, req)
	m.unsubscribe(unsubscribe, &st)
	m.wildcard(subscribe, unsubscribe, brought, &st)
	m.subscribe(subscribe, brought, &st)
	return st, nil
}

// after returns how many names the stream would hold after a request: those that the client
// named, and the removals that it must receive.
func (m *delta) after(t *subscription, subscribe, unsubscribe []string) int {
	if most := t.asked + len(t.gone) + len(subscribe); most <= m.limits.MaxNames {
		return most // near enough, and free
	}
	named, gone, wild := map[string]bool{}, map[string]struct{}{}, t.wild != nil
	maps.Copy(gone, t.gone)
	for name, e := range t.entries {
		if e.named {
			named[name] = true
		}
	}
	for _, name := range unsubscribe {
		switch {
		case name == star && wild:
			wild = false
			clear(gone)
		case named[name]:
			delete(named, name)
			if wild && !t.entries[name].listed {
				gone[name] = struct{}{}
			}
		}
	}
	for name := range m.names(subscribe, &step{}) {
		named[name] = true
		delete(gone, name)
	}
	return len(named) + len(gone)
}

// answer handles the ACK or NACK of any response on the stream. Unlike in state of the
// world, a nonce never becomes stale.
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

// brought returns the versions the client holds from an earlier stream. Only the first
// request of a type can carry them, and only for names it subscribes to.
func (m *delta) brought(typ int, req *discovery.DeltaDiscoveryRequest) map[string]string {
	t := &m.types[typ]
	if t.begun {
		return nil
	}
	t.begun = true
	return req.GetInitialResourceVersions()
}

// unsubscribe removes names. A name the client did not subscribe to explicitly cannot
// be removed: the wildcard covers it.
func (m *delta) unsubscribe(names []string, st *step) {
	t := &m.types[st.typ]
	for _, name := range names {
		if name == star {
			t.none(st)
			t.explicit = true
		} else if e := t.entries[name]; e != nil && e.named {
			m.leave(e, st)
		}
	}
}

// leave removes a name. With a wildcard the client cannot know whether to keep it, so
// it gets the removal either way.
func (m *delta) leave(e *entry, st *step) {
	t := &m.types[st.typ]
	stays := t.disclaim(e)
	if !stays {
		st.dropped = append(st.dropped, e)
	}
	switch {
	case t.wild == nil:
		return
	case stays:
		t.resend(e)
	default:
		t.lose(e.name)
	}
	st.woken = true
}

// wildcard subscribes if the names ask for it. Subscribing again resends everything.
func (m *delta) wildcard(subscribe, unsubscribe []string, brought map[string]string, st *step) {
	t := &m.types[st.typ]
	says := len(subscribe) > 0 || len(unsubscribe) == 0 && t.wild == nil
	switch {
	case !says || !t.asksForAll(subscribe):
	case t.wild == nil:
		t.all(brought, st)
	default:
		for _, e := range t.entries {
			if e.listed {
				t.resend(e)
			}
		}
		t.owed, st.woken = t.wild.ready, true
	}
	t.explicit = t.explicit || len(subscribe) > 0
}

func (m *delta) subscribe(names []string, brought map[string]string, st *step) {
	t := &m.types[st.typ]
	for name := range m.names(names, st) {
		e, isNew := t.add(name)
		first := t.claim(e)
		switch {
		case isNew:
			if version, has := brought[name]; has {
				e.known = version
			}
			st.added = append(st.added, e)
		case first || e.has() || e.refused:
			t.resend(e)
			st.woken = true
		}
	}
}

// respond builds the next response from the source's answers; it returns false if there
// is nothing to send.
func (m *delta) respond(typ int, found []lookup, now time.Time) (*discovery.DeltaDiscoveryResponse, batch, bool) {
	b, ok := m.choose(typ, found, now)
	if !ok {
		return nil, b, false
	}
	t := &m.types[typ]
	for _, name := range b.refused {
		t.forget(t.entries[name])
	}
	response := &discovery.DeltaDiscoveryResponse{
		SystemVersionInfo: b.version, TypeUrl: t.policy.url, Nonce: m.nonce(typ, t.seq),
		RemovedResources: slices.Concat(b.refused, b.removed),
	}
	for _, r := range b.resources {
		response.Resources = append(response.Resources, &discovery.Resource{Name: r.Name, Version: r.Version, Resource: r.Body})
	}
	return response, b, true
}
