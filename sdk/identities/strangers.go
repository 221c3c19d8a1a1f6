package identities

import "time"

const (
	// everyProcess is the pid that stands for all processes of a user.
	everyProcess = -1
	// holdBack is when a token looks again that others of its process hold back.
	holdBack = 250 * time.Millisecond
	// knownFor is how long a process is known after its last success. Its pid may then be another's.
	knownFor = time.Hour
	// maxKnown bounds the known processes.
	maxKnown = 4096
)

// process identifies the process that opened a stream.
type process struct {
	uid uint32
	pid int32
}

func (p process) user() process { return process{p.uid, everyProcess} }

// strangers counts the unverified tokens, for each process and, as processes
// are cheap to make, for each user. Those that are tried count as well, or any number could
// be refused at once. A process that had a token verified counts for itself alone: the proxies of
// a node may all have one uid.
type strangers struct {
	limits  Limits
	refused tally // refused lately
	trying  tally // sent to the authority or the Verifier
	failing tally // neither refused nor verified, as the authority is away; of processes alone
	known   map[process]time.Time
}

func newStrangers(l Limits) strangers {
	return strangers{l, tally{}, tally{}, tally{}, map[process]time.Time{}}
}

// closed returns the limit that the refused tokens have reached, or nil.
func (s *strangers) closed(by process) error {
	switch {
	case s.refused[by] >= s.limits.Refused:
		return limited("tokens of one process that were refused lately", s.limits.Refused)
	case !s.knows(by) && s.refused[by.user()] >= s.limits.RefusedPerUser:
		return limited("tokens of one user that were refused lately", s.limits.RefusedPerUser)
	}
	return nil
}

// busy reports whether one more token must wait: the refusal of all that are tried would
// reach a limit. Those that fail count for their process alone, as that may last.
func (s *strangers) busy(by process) bool {
	user := by.user()
	return s.refused[by]+s.trying[by]+s.failing[by] >= s.limits.Refused ||
		!s.knows(by) && s.refused[user]+s.trying[user] >= s.limits.RefusedPerUser
}

func (s *strangers) addRefused(by process, n int) { s.refused.add(by, n, s.knows(by)) }

func (s *strangers) addTrying(by process, n int) { s.trying.add(by, n, s.knows(by)) }

// succeeded notes that a token of the process was verified: what counts against it no longer counts
// against its user.
func (s *strangers) succeeded(by process) {
	if !s.knows(by) {
		for len(s.known) >= maxKnown {
			s.forget(s.oldest())
		}
		s.refused.bill(by, -s.refused[by])
		s.trying.bill(by, -s.trying[by])
	}
	s.known[by] = time.Now()
}

func (s *strangers) knows(by process) bool {
	last, known := s.known[by]
	if known && time.Since(last) >= knownFor {
		s.forget(by)
		known = false
	}
	return known
}

func (s *strangers) forget(by process) {
	delete(s.known, by)
	s.refused.bill(by, s.refused[by])
	s.trying.bill(by, s.trying[by])
}

func (s *strangers) oldest() (by process) {
	var first time.Time
	for p, last := range s.known {
		if first.IsZero() || last.Before(first) {
			by, first = p, last
		}
	}
	return by
}

// tally counts for a process and its user.
type tally map[process]int

func (t tally) add(by process, n int, known bool) {
	t.change(by, n)
	if !known {
		t.bill(by, n)
	}
}

// bill changes the sum of the user alone.
func (t tally) bill(by process, n int) { t.change(by.user(), n) }

func (t tally) change(p process, n int) {
	if t[p] += n; t[p] <= 0 {
		delete(t, p)
	}
}
