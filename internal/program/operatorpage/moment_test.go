package operatorpage

import (
	"testing"
	"time"
)

func TestMomentWording(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for distance, want := range map[time.Duration]Moment{
		0:                     {"2026-11-21T12:00:00Z", "12:00:00", "now"},
		90 * time.Second:      {"2026-11-21T12:01:30Z", "12:01:30", "in 90 s"},
		-30 * time.Minute:     {"2026-11-21T11:30:00Z", "11:30:00", "30 min ago"},
		25 * time.Hour:        {"2026-11-22T13:00:00Z", "2026-11-22 13:00", "in 25 h 0 min"},
		-100 * 24 * time.Hour: {"2026-08-13T12:00:00Z", "2026-08-13 12:00", "100 days ago"},
	} {
		if got := At(now.Add(distance).In(time.FixedZone("", 7200)), now); got != want {
			t.Errorf("%s: got %+v, want %+v", distance, got, want)
		}
	}
}
