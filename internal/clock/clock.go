// Package clock is the wall clock: [Wall] is what a Now function is by default.
package clock

import "time"

// Wall returns the time without its monotonic reading. That stands still while the machine
// sleeps, and a comparison of two times with it would not notice a suspend.
func Wall() time.Time { return time.Now().Round(0) }

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// First is Earlier where a may be zero, which stands for none.
func First(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return Earlier(a, b)
}

// Stamp returns the time as messages show it: RFC 3339, in UTC.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
