package xds

import (
	"maps"
	"sync"
	"time"
)

// maxCallers bounds the callers whose log lines are limited on their own. All others share
// one limit.
const maxCallers = 1000

// callers limits log lines for each caller, on all of its streams, those that have ended
// included. The zero value is ready.
type callers struct {
	mu   sync.Mutex
	each map[string]*callerLines
}

type callerLines struct{ refused, nacked limiter }

func (c *callers) of(caller string, now time.Time) *callerLines {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lines := c.each[caller]; lines != nil {
		return lines
	}
	if len(c.each) >= maxCallers {
		maps.DeleteFunc(c.each, func(_ string, l *callerLines) bool { return l.refused.over(now) && l.nacked.over(now) })
	}
	if len(c.each) >= maxCallers {
		caller = ""
	}
	if c.each == nil {
		c.each = make(map[string]*callerLines)
	}
	if c.each[caller] == nil {
		c.each[caller] = &callerLines{}
	}
	return c.each[caller]
}

// limiter limits log lines per minute.
type limiter struct {
	mu     sync.Mutex
	begun  time.Time // start of the current minute
	lines  int       // logged in this minute
	unsaid int       // suppressed since the last line
}

// allow reports whether a line about n things may be logged now, given at most
// perMinute lines a minute, and how many things were suppressed before it.
func (l *limiter) allow(now time.Time, perMinute, n int) (unsaid int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.begun) >= time.Minute {
		l.begun, l.lines = now, 0
	}
	if l.lines == perMinute {
		l.unsaid += n
		return 0, false
	}
	l.lines++
	unsaid, l.unsaid = l.unsaid+n-1, 0
	return unsaid, true
}

// over reports whether the last minute is over.
func (l *limiter) over(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Sub(l.begun) >= time.Minute
}
