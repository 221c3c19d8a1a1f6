package conformance

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// maxAttempts is how often a check is run that fails while the machine stands still.
	maxAttempts = 3
	// beat is how often stalls looks at the clock, and late how much later than that is a stall:
	// what a busy machine has, and a starved one exceeds.
	beat = 10 * time.Millisecond
	late = 100 * time.Millisecond
)

// stalls watches how late this process gets the processor, and with it likely the provider, and
// how long processes wait for the disk or for memory: a provider is read from disk when it starts.
// stood ends that and reports whether either took more than a fifth of the time: deadlines that
// passed meanwhile are not the provider's fault.
func stalls() (stood func() bool) {
	begin, waited, end := time.Now(), pressure("/proc/pressure"), make(chan struct{})
	missed := make(chan time.Duration, 1)
	go func() {
		var sum time.Duration
		for {
			before := time.Now()
			select {
			case <-end:
				missed <- sum
				return
			case <-time.After(beat):
			}
			if over := time.Since(before) - beat; over > late {
				sum += over
			}
		}
	}()
	return func() bool {
		close(end)
		return max(<-missed, pressure("/proc/pressure")-waited) > time.Since(begin)/5
	}
}

// pressure returns for how long any process has waited for the disk or for memory since the machine
// started, from a folder of Linux's pressure stall information
// (https://docs.kernel.org/accounting/psi.html); 0 on a system without it.
func pressure(dir string) (sum time.Duration) {
	for _, file := range []string{"io", "memory"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		some, _, _ := strings.Cut(string(text), "\n")
		_, total, _ := strings.Cut(some, "total=")
		if micros, err := strconv.ParseInt(total, 10, 64); err == nil {
			sum += time.Duration(micros) * time.Microsecond
		}
	}
	return sum
}
