// Package polling waits in tests for what sends no event: an effect of another process, a page, /proc.
package polling

import (
	"strings"
	"testing"
	"time"
)

// Until waits until a condition holds. After limit the test fails, with the texts of show.
func Until(tb testing.TB, limit time.Duration, what string, holds func() bool, show ...func() string) {
	tb.Helper()
	deadline, tick := time.NewTimer(limit), time.NewTicker(20*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			var shown strings.Builder
			for _, text := range show {
				shown.WriteString("\n" + text())
			}
			tb.Fatalf("not within %s: %s%s", limit, what, &shown)
		}
	}
}
