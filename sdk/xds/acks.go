package xds

import "slices"

// ack takes the acknowledgement of response seq and of those before it; it tells
// whether that is news. What was refused is not acknowledged afterwards.
func (s *subscription) ack(seq uint64) bool {
	if seq <= s.acked || seq == s.nacked {
		return false
	}
	s.acked = seq
	s.unhold()
	return true
}

// nack takes the refusal of response seq; it tells whether that is news, and which
// names the response had that were not sent again since.
func (s *subscription) nack(seq uint64) (names []string, news bool) {
	if seq <= s.nacked || seq <= s.acked {
		return nil, false
	}
	s.nacked = seq
	for name, e := range s.entries {
		if e.sent != nil && e.seq == seq {
			e.nacked = true
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, true
}
