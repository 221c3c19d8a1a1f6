package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// percent returns GOGC as it is in force.
func percent() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestFirstCollectionRestoresTheUsualOnes(t *testing.T) {
	if os.Getenv("GOGC") != "" {
		t.Skip("the environment sets it")
	}
	usual := percent()
	CollectLate()
	defer debug.SetGCPercent(usual)
	runtime.GC()
	for deadline := time.Now().Add(time.Minute); percent() != usual; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("GOGC is %d, and was %d", percent(), usual)
		}
	}
}

func TestEnvironmentDecidesWhenGarbageIsCollected(t *testing.T) {
	t.Setenv("GOGC", "100")
	usual := percent()
	if CollectLate(); percent() != usual {
		t.Errorf("GOGC is %d", percent())
	}
}
