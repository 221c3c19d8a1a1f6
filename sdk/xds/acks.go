package xds

import (
	"maps"
	"slices"
)

// ack records the acknowledgement of response seq and all before it, and reports
// whether that is new. A rejected response cannot be acknowledged later.
func (s *subscription) ack(seq uint64) bool {
	if seq <= s.acked || seq == s.nacked {
		return false
	}
	s.acked = seq
	if t := s.trial; t != nil && t.seq != 0 && t.seq <= seq {
		s.accepted()
	}
	s.unhold()
	return true
}

// nack records the rejection of response seq and reports whether that is new: the names in
// the response that have not been resent since, and the resource at fault, if it is known.
func (s *subscription) nack(seq uint64) (names []string, atFault *Resource, news bool) {
	if seq <= s.nacked || seq <= s.acked {
		return nil, nil, false
	}
	s.nacked = seq
	var refused []*entry
	for name, e := range s.entries {
		if e.sent != nil && e.seq == seq {
			e.nacked = true
			names, refused = append(names, name), append(refused, e)
		}
	}
	slices.Sort(names)
	return names, s.isolate(seq, refused), true
}

// Acknowledged reports whether each stream that has one of the names has acknowledged a
// resource of that name that provides tag; see [Resource].
func (e *Engine[C]) Acknowledged(url string, names []string, tag string) bool {
	typ := slices.Index(e.urls, url)
	if typ < 0 {
		return true
	}
	e.mu.Lock()
	open := slices.Collect(maps.Keys(e.open))
	e.mu.Unlock()
	return !slices.ContainsFunc(open, func(s ender) bool {
		stream, ok := s.(interface {
			has(int, []string, string) bool
		})
		return ok && !stream.has(typ, names, tag)
	})
}

func (r *runner[C, Q, R]) has(typ int, names []string, tag string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.has(typ, names, tag)
}

// has reports whether the client has what provides tag under each of the names that it
// asked for.
func (s *session) has(typ int, names []string, tag string) bool {
	t := &s.types[typ]
	return !slices.ContainsFunc(names, func(name string) bool {
		e := t.entries[name]
		return e != nil && (e.sent == nil || !slices.Contains(e.sent.Provides, tag) || e.nacked || e.seq > t.acked)
	})
}
