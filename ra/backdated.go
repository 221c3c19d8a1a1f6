package ra

import "time"

// backdated is by how much an authority backdates its certificates.
type backdated struct {
	by    time.Duration
	known bool // it has answered with a certificate
}

// usualBackdating is assumed of an authority that has not answered yet.
const usualBackdating = 5 * time.Minute

// restore takes what a record has.
func (b *backdated) restore(by time.Duration) { b.by, b.known = max(0, by), by > 0 }

// learn reports whether it is another now. Times have whole seconds, and what wobbles by one must not
// change what is asked for, as a repeat asks for the same.
func (b *backdated) learn(by time.Duration) (changed bool) {
	if changed = by > b.by || by < b.by-time.Second; changed {
		b.by = by
	}
	return changed
}

// lifetime returns the lifetime to ask for, so that an order's leaf lives no longer than it may.
func (b *backdated) lifetime(o *Order) time.Duration {
	by, most := b.by, o.most()
	if !b.known && !o.door.strict() {
		by = max(by, min(usualBackdating, most/10)) // a little less than granted, instead of a certificate in vain
	}
	if by < most {
		return min(o.ttl, most-by)
	}
	return o.ttl
}
