package pluginhost

import (
	"testing"
	"time"
)

func TestCrashesBackOffThenOpenCircuit(t *testing.T) {
	var r recovery
	now := time.Unix(0, 0)
	for i, most := range []time.Duration{100, 200, 400, 800} {
		wait, open := r.next(now, record{})
		if most *= time.Millisecond; open || wait > most*5/4 || wait < most*3/4 {
			t.Errorf("crash %d: %s, open %v", i+1, wait, open)
		}
	}
	for i, want := range []time.Duration{30, 60, 120, 240, 300, 300} {
		if wait, open := r.next(now, record{}); !open || wait > want*time.Second*5/4 || wait < want*time.Second*3/4 {
			t.Errorf("probe %d: %s, open %v, want some %ds", i+1, wait, open, want)
		}
	}
	if wait, open := r.next(now, record{ready: time.Minute}); open || wait > 125*time.Millisecond {
		t.Errorf("after a minute of health: %s, open %v", wait, open)
	}
}

func TestSlowCrashesNeverOpenCircuit(t *testing.T) {
	var r recovery
	now := time.Unix(0, 0)
	for range 50 {
		now = now.Add(31 * time.Second)
		if wait, open := r.next(now, record{}); open || wait > restarts.Most {
			t.Fatalf("%s, open %v", wait, open)
		}
	}
}
