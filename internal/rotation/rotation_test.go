package rotation

import (
	"testing"
	"time"
)

var aDay = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestRenewalMomentsAreSpreadOverTheWholeJitter(t *testing.T) {
	var early, late int
	for range 1000 {
		switch at := Renewal(0.5, 0.1, aDay, aDay.Add(100*time.Hour)).Sub(aDay); {
		case at < 40*time.Hour || at > 60*time.Hour:
			t.Fatalf("renewal is due after %s", at)
		case at < 45*time.Hour:
			early++
		case at > 55*time.Hour:
			late++
		}
	}
	if early < 150 || late < 150 {
		t.Errorf("%d are early, %d late, of 1000", early, late)
	}
}
