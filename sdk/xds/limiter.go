package xds

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// maxCallers bounds the callers whose log lines are limited on their own. All others share
// one limit.
const maxCallers = 1000

// maxRefusedHashes bounds the contents that are remembered for a caller.
const maxRefusedHashes = 64

// callers limits log lines for each caller, on all of its streams, those that have ended
// included, and remembers which contents its clients refused. The zero value is ready.
type callers struct {
	anyRefused atomic.Bool // any content is remembered

	mu   sync.Mutex
	each map[string]*callerLines
}

type callerLines struct {
	refused, nacked limiter
	refusedHashes   map[contentHash]struct{} // guarded by the callers' lock
}

// contentHash identifies the content of a resource.
type contentHash [16]byte

func hashOf(typ int, r *Resource) contentHash {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %q %q", typ, r.Name, r.Version))
	return contentHash(sum[:16])
}

// remember keeps content that a client of the caller refused. A caller decides for itself
// alone.
func (c *callers) remember(caller string, content contentHash, now time.Time) {
	lines := c.of(caller, now)
	c.mu.Lock()
	defer c.mu.Unlock()
	if lines.refusedHashes == nil {
		lines.refusedHashes = map[contentHash]struct{}{}
	}
	if len(lines.refusedHashes) >= maxRefusedHashes {
		for old := range lines.refusedHashes {
			delete(lines.refusedHashes, old)
			break
		}
	}
	lines.refusedHashes[content] = struct{}{}
	c.anyRefused.Store(true)
}

// refusedBy returns a copy of what is remembered for the caller; nil for nothing.
func (c *callers) refusedBy(caller string) map[contentHash]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := c.each[caller]
	if lines == nil {
		return nil
	}
	return maps.Clone(lines.refusedHashes)
}

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
