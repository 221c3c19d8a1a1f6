package endpoint_test

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
)

func TestRetryAfterIsSecondsOrDateUpToADay(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"120": 2 * time.Minute, "": 0, "-1": 0, "soon": 0, "Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:00:00 GMT": 0,
		"2000000000": 24 * time.Hour, "99999999999999999999": 0,
	} {
		if got := endpoint.RetryAfter(value, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}
