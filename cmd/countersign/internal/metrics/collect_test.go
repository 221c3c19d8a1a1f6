package metrics

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestLastFifthIsThatOfTheFirstListToGetThere(t *testing.T) {
	start := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	short := secret.RevocationList{ThisUpdate: start, NextUpdate: start.Add(10 * time.Hour)}
	long := secret.RevocationList{ThisUpdate: start.Add(-89 * time.Hour), NextUpdate: start.Add(11 * time.Hour)}
	for want, lists := range map[time.Time][]secret.RevocationList{
		start.Add(8 * time.Hour): {short}, start.Add(-9 * time.Hour): {short, long}, {}: nil,
	} {
		if got := lastFifth(lists); !got.Equal(want) {
			t.Errorf("%d lists: got %s, want %s", len(lists), got, want)
		}
	}
}
