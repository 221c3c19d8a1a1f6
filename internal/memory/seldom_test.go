package memory

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// cycles is how many collections there were.
func cycles() uint64 {
	samples := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}

var waste []byte

// apart runs a test in a process of its own: nothing ends a pace.
func apart(t *testing.T) (here bool) {
	t.Helper()
	if os.Getenv("GOGC") != "" {
		t.Skip("the environment sets it")
	}
	if os.Getenv("COUNTERSIGN_TEST_APART") != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$") // #nosec G204 -- the test itself
	cmd.Env = append(os.Environ(), "COUNTERSIGN_TEST_APART=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

func TestSmallHeapIsCollectedSeldom(t *testing.T) {
	if !apart(t) {
		return
	}
	CollectSeldom(64 << 20)
	before := cycles()
	for range 640 {
		waste = make([]byte, 1<<20)
	}
	if n := cycles() - before; n == 0 || n > 16 {
		t.Errorf("640 MiB of garbage were collected in %d cycles, want about 10", n)
	}
}

// A provider is its author's program, which may have set it.
func TestWhatTheProgramHasSetTakesPrecedence(t *testing.T) {
	if !apart(t) {
		return
	}
	debug.SetGCPercent(50)
	CollectSeldom(32 << 20)
	if got := percent(); got != 50 {
		t.Errorf("GOGC is %d, want 50", got)
	}
}

func TestGarbageIsBoundedAsTheHeapGrows(t *testing.T) {
	const MiB = 1 << 20
	for _, test := range []struct {
		garbage, inUse uint64
		want           int
	}{
		{32 * MiB, 0, 800}, // 32 MiB in all, as the runtime multiplies 4 MiB by it
		{32 * MiB, 4 * MiB, 800}, {32 * MiB, 8 * MiB, 400}, {32 * MiB, 32 * MiB, 100}, {32 * MiB, 1024 * MiB, 100}, {0, 0, 100},
	} {
		if got := percentFor(test.garbage, test.inUse); got != test.want {
			t.Errorf("%d MiB of garbage beside %d MiB: GOGC %d, want %d", test.garbage/MiB, test.inUse/MiB, got, test.want)
		}
	}
}

func TestEachCollectionSetsThePace(t *testing.T) {
	if !apart(t) {
		return
	}
	CollectSeldom(32 << 20)
	held := make([]byte, 64<<20) // the next collection finds that much in use
	runtime.GC()
	for deadline := time.Now().Add(time.Minute); percent() != usual; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("GOGC is %d beside 64 MiB in use, want %d", percent(), usual)
		}
	}
	runtime.KeepAlive(held)
}
