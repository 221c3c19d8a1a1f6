package endpoint

import (
	"net/http"
	"strconv"
	"time"
)

// longestRetryAfter bounds what a server may ask for; who waits bounds it further.
const longestRetryAfter = 24 * time.Hour

// RetryAfter reads either form of the header of that name (RFC 9110, section 10.2.3):
// seconds, or the time at which to come back. It is zero where neither is there, and a
// day at most.
func RetryAfter(value string, now time.Time) time.Duration {
	var wait time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = at.Sub(now)
	}
	return max(0, min(wait, longestRetryAfter))
}
