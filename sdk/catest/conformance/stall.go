package conformance

import "time"

const (
	// maxAttempts is how often a check is run that fails while the machine stands still.
	maxAttempts = 3
	// beat is how often stalls looks at the clock, and late how much later than that is a stall:
	// what a busy machine has, and a starved one exceeds.
	beat = 10 * time.Millisecond
	late = 100 * time.Millisecond
)

// stalls watches how late this process gets the processor, and with it likely the provider.
// stood ends that and reports whether it missed more than a fifth of the time: deadlines that
// passed meanwhile say nothing of the provider.
func stalls() (stood func() bool) {
	begin, end := time.Now(), make(chan struct{})
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
		return <-missed > time.Since(begin)/5
	}
}
