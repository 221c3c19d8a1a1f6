package identities

import (
	"strings"
	"testing"
)

// A time with a monotonic reading ("m=") stands still while the machine sleeps.
func TestTheClockIsTheWalls(t *testing.T) {
	now := Config{}.withDefaults().Now().String()
	if strings.Contains(now, "m=") {
		t.Errorf("the clock says %s", now)
	}
}
