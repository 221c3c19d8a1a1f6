package rotation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
)

// A time with a monotonic reading ("m=") stands still while the machine sleeps.
func TestClockIsWallClock(t *testing.T) {
	if now := clock.Wall().String(); strings.Contains(now, "m=") {
		t.Errorf("the clock shows %s", now)
	}
}

func TestTimesAreShownInUTC(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.FixedZone("", 3600))
	if got := clock.Stamp(at); got != "2026-03-01T11:00:00Z" {
		t.Error(got)
	}
}

func TestLaterOfTwoTimes(t *testing.T) {
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	if clock.Later(first, second) != second || clock.Later(second, first) != second {
		t.Error("the first is taken for the later one")
	}
}
