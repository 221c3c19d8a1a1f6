// Package share bounds what several users of one resource take together, without one that keeps
// its places delaying the others.
package share

// Places are those of all users. Each user has Own places to itself, beside the Common ones, of which
// it may have as many as are left: so users that keep theirs for good never take all. The zero value
// has none. It is not safe for concurrent use.
type Places struct {
	Own, Common int
	taken       int // of the common ones
}

// Take takes one more place for a user that has some, and reports whether there is one for it.
func (p *Places) Take(has int) bool {
	switch {
	case has < p.Own:
		return true
	case has-p.Own >= p.Common-p.taken:
		return false
	}
	p.taken++
	return true
}

// Give gives one place back of a user that has some. Own must not have changed since Take.
func (p *Places) Give(has int) {
	if has > p.Own {
		p.taken--
	}
}

// Keep takes a common place for what a user that has gone has left running, even if none is left.
func (p *Places) Keep() { p.taken++ }

// Free gives such a place back.
func (p *Places) Free() { p.taken-- }
