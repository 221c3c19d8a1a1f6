package discovery

import (
	"maps"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Metrics are counts since the server was created. Their keys come from the
// configuration and fixed lists, never from a client.
type Metrics struct {
	// Streams is the number of open streams.
	Streams int
	// Subscribed counts, by type URL, the open streams that watch a resource of a type,
	// and Refusing those of them whose client rejected a resource or the last response.
	Subscribed, Refusing map[string]int
	// Pushes, Nacks and Names count, by type URL, responses sent, NACKs received, and
	// names left out as unknown or not for the caller.
	Pushes, Nacks, Names map[string]uint64
	// Authentications are by kind of credential, Refusals by the reason a stream was
	// refused: not-ready, no-credential, refused, unavailable, malformed, plaintext,
	// limit, address-limit. A refused connection counts as a stream.
	Authentications map[authn.Kind]uint64
	Refusals        map[string]uint64
	// Ended counts the streams the server ended, by reason: age, credential-expired,
	// no-request, shutdown, roots-changed, asked.
	Ended map[string]uint64
	// Sent and Acked measure the time from a change until a stream was sent it, and
	// until its client acknowledged it.
	Sent, Acked Histogram
}

// Histogram counts durations.
type Histogram struct {
	Count uint64
	Sum   time.Duration
	// Buckets maps an upper bound in seconds to how many durations were no longer.
	Buckets map[float64]uint64
}

// bounds are the bucket bounds in seconds.
var bounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

func (h *Histogram) add(d time.Duration) {
	h.Count++
	h.Sum += d
	for _, bound := range bounds {
		if d.Seconds() <= bound {
			h.Buckets[bound]++
		}
	}
}

func (h Histogram) clone() Histogram {
	h.Buckets = maps.Clone(h.Buckets)
	return h
}

// metrics is the mutable state behind Metrics.
type metrics struct {
	mu sync.Mutex
	Metrics
}

func newMetrics(urls []string) *metrics {
	m := &metrics{Metrics: Metrics{
		Pushes: map[string]uint64{}, Nacks: map[string]uint64{}, Names: map[string]uint64{},
		Authentications: map[authn.Kind]uint64{}, Refusals: map[string]uint64{}, Ended: map[string]uint64{},
		Sent: Histogram{Buckets: map[float64]uint64{}}, Acked: Histogram{Buckets: map[float64]uint64{}},
	}}
	for _, url := range urls { // present from the start, as 0
		m.Pushes[url], m.Nacks[url], m.Names[url] = 0, 0, 0
	}
	for _, r := range allReasons {
		m.Refusals[string(r)] = 0
	}
	for _, bound := range bounds {
		m.Sent.Buckets[bound], m.Acked.Buckets[bound] = 0, 0
	}
	return m
}

func (m *metrics) count(f func(m *Metrics)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.Metrics)
}

func (m *metrics) refuse(r reason) { m.count(func(m *Metrics) { m.Refusals[string(r)]++ }) }

func (m *metrics) authenticated(k authn.Kind) { m.count(func(m *Metrics) { m.Authentications[k]++ }) }

func (m *metrics) ended(why string, n int) {
	m.count(func(m *Metrics) { m.Ended[why] += uint64(max(n, 0)) }) // #nosec G115 -- never negative
}

// Metrics returns the current counts.
func (s *Server) Metrics() Metrics {
	subscribed, refusing := s.subscriptions()
	m := s.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.Metrics
	out.Streams, out.Subscribed, out.Refusing = s.engine.Streams(), subscribed, refusing
	out.Pushes, out.Nacks, out.Names = maps.Clone(m.Pushes), maps.Clone(m.Nacks), maps.Clone(m.Names)
	out.Authentications, out.Refusals, out.Ended = maps.Clone(m.Authentications), maps.Clone(m.Refusals), maps.Clone(m.Ended)
	out.Sent, out.Acked = m.Sent.clone(), m.Acked.clone()
	return out
}

// subscriptions runs with no other lock held: counting a push happens with its session
// locked.
func (s *Server) subscriptions() (subscribed, refusing map[string]int) {
	subscribed, refusing = map[string]int{}, map[string]int{}
	for _, url := range s.urls { // present from the start, as 0
		subscribed[url], refusing[url] = 0, 0
	}
	for _, of := range s.sessions.all() {
		for i, url := range s.urls {
			of.of(i, func(p *progress) {
				if p.subscribed == 0 {
					return
				}
				subscribed[url]++
				if p.status(url).Refusing() {
					refusing[url]++
				}
			})
		}
	}
	return subscribed, refusing
}

// observe handles the engine's stream events.
func (s *Server) observe(e xds.Event[*Caller]) {
	switch e.Kind {
	case xds.Pushed:
		s.pushed(e)
	case xds.Acked:
		s.acked(e)
	case xds.Nacked:
		s.nacked(e)
	case xds.Cleared:
		e.Caller.session.of(s.index(e.TypeURL), func(p *progress) { p.cleared(e.Left) })
	case xds.Refused:
		s.metrics.count(func(m *Metrics) { m.Names[e.TypeURL] += uint64(len(e.Client.Names)) })
	}
	s.cfg.Observe(e)
}

func (s *Server) pushed(e xds.Event[*Caller]) {
	e.Caller.session.of(s.index(e.TypeURL), func(p *progress) {
		took, changed := p.push(e.Version)
		s.metrics.count(func(m *Metrics) {
			m.Pushes[e.TypeURL]++
			if changed {
				m.Sent.add(took)
			}
		})
	})
}

func (s *Server) acked(e xds.Event[*Caller]) {
	e.Caller.session.of(s.index(e.TypeURL), func(p *progress) {
		p.rejected = e.Left
		if took, changed := p.ack(e.Version); changed {
			s.metrics.count(func(m *Metrics) { m.Acked.add(took) })
		}
	})
}

func (s *Server) nacked(e xds.Event[*Caller]) {
	s.metrics.count(func(m *Metrics) { m.Nacks[e.TypeURL]++ })
	e.Caller.session.of(s.index(e.TypeURL), func(p *progress) {
		p.sending = time.Time{}
		p.rejected = e.Left
		p.refused = &Refusal{Version: e.Version, Reason: e.Client.Message, At: s.sessions.now()}
		if len(e.Client.Names) == 1 {
			p.refused.Name = e.Client.Names[0]
		}
	})
}
