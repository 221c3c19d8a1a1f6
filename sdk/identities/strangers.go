package identities

import "time"

const (
	// everyProcess is the pid that stands for all processes of a user.
	everyProcess = -1
	// holdBack is when a token looks again that others of its process hold back.
	holdBack = 250 * time.Millisecond
)

// process identifies the process that opened a stream.
type process struct {
	uid uint32
	pid int32
}

func (p process) user() process { return process{p.uid, everyProcess} }

// strangers counts the tokens that nobody has verified, for each process and, as processes
// are cheap to make, for each user. Those that are tried count as well, or any number could
// be refused at once.
type strangers struct {
	limits  Limits
	refused tally // refused lately
	trying  tally // sent to the authority or the Verifier
}

func newStrangers(l Limits) strangers { return strangers{l, tally{}, tally{}} }

// closed returns the limit that the refused tokens have reached, or nil.
func (s *strangers) closed(by process) error {
	switch {
	case s.refused[by] >= s.limits.Refused:
		return limited("tokens of one process that were refused lately", s.limits.Refused)
	case s.refused[by.user()] >= s.limits.RefusedPerUser:
		return limited("tokens of one user that were refused lately", s.limits.RefusedPerUser)
	}
	return nil
}

// busy reports whether one more token must wait: the refusal of all that are tried would
// reach a limit.
func (s *strangers) busy(by process) bool {
	user := by.user()
	return s.refused[by]+s.trying[by] >= s.limits.Refused || s.refused[user]+s.trying[user] >= s.limits.RefusedPerUser
}

// tally counts for a process and its user.
type tally map[process]int

func (t tally) add(by process, n int) {
	for _, p := range [...]process{by, by.user()} {
		if t[p] += n; t[p] <= 0 {
			delete(t, p)
		}
	}
}
