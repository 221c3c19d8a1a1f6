package xds

import "slices"

// ack records the acknowledgement of response seq and all before it, and reports
// whether that is new. A rejected response cannot be acknowledged later.
func (s *subscription) ack(seq uint64) bool {
	if seq <= s.acked || seq == s.nacked {
		return false
	}
	s.acked = seq
	s.unhold()
	return true
}

// nack records the rejection of response seq. It reports whether that is new and
// returns the names in the response that have not been resent since.
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
