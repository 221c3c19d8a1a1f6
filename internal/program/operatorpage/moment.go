package operatorpage

import (
	"fmt"
	"time"
)

// Moment is a time as the page shows it, and seen from now.
type Moment struct {
	Exact string // RFC 3339
	Shown string // UTC; without its day where that is today
	Far   string // "in 5m", "5m ago"
}

// At is a time, seen from now.
func At(t, now time.Time) Moment {
	m := Moment{Exact: t.UTC().Format(time.RFC3339), Shown: t.UTC().Format("2006-01-02 15:04")}
	if t.UTC().Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		m.Shown = t.UTC().Format(time.TimeOnly)
	}
	switch d := t.Sub(now); {
	case d.Abs() < time.Second:
		m.Far = "now"
	case d > 0:
		m.Far = "in " + long(d)
	default:
		m.Far = long(-d) + " ago"
	}
	return m
}

// long formats a time in the one or two units that a person would.
func long(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%d days", d/day)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}
