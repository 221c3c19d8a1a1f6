package broker

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/recent"
	"github.com/countersign-dev/countersign/internal/tokenbucket"
)

// The limits of one broker. A restart of the agent has a broker of 1,000 workloads open each of its
// streams anew; a scan of all PIDs is to take hours.
const (
	maxStreams      = 10_000
	maxOfWorkload   = 32 // streams and calls of one workload
	callsBurst      = 10_000
	callsPerSecond  = 100.0
	refusedBurst    = 128 // of different references
	refusedPer      = 1.0 // second
	refusedRemember = 1024
	refusedFor      = time.Minute // a repeat within this time counts no more
)

// account is what one broker uses.
type account struct {
	Broker

	mu      sync.Mutex
	calls   tokenbucket.Bucket
	refused tokenbucket.Bucket
	known   recent.Map[string, time.Time] // references that were refused
	streams int
	of      map[string]int // by workload
}

func newAccount(b Broker) *account {
	return &account{Broker: b, known: recent.New[string, time.Time](refusedRemember), of: map[string]int{}}
}

var (
	errCalls   = status.Error(codes.ResourceExhausted, "this broker makes too many calls; wait before the next one")
	errRefused = status.Error(codes.ResourceExhausted, "too many references of this broker were refused; wait before the next one")
	errStreams = status.Error(codes.ResourceExhausted, "this broker has too many streams open")
	errOfOne   = status.Error(codes.ResourceExhausted, "this broker has too many streams open for this workload")
)

// begin counts a call, and returns what ends it.
func (a *account) begin(reference string, now time.Time) (end func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.calls.Wait(now, callsPerSecond, callsBurst) > 0:
		return nil, errCalls
	case a.streams >= maxStreams:
		return nil, errStreams
	case !a.repeated(reference, now) && a.refused.Wait(now, refusedPer, refusedBurst) > 0:
		return nil, errRefused
	}
	a.calls.Spend()
	a.streams++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.streams--
	}, nil
}

// repeated reports whether the reference was refused a short time ago: asking again reveals nothing new.
func (a *account) repeated(reference string, now time.Time) bool {
	at, ok := a.known.Get(reference)
	return ok && now.Sub(at) < refusedFor
}

// refuse counts a refused reference.
func (a *account) refuse(reference string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.repeated(reference, now) {
		return
	}
	a.refused.Spend()
	a.known.Put(reference, now)
}

// take occupies one of the places of a workload.
func (a *account) take(workload string) (free func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[workload] >= maxOfWorkload {
		return nil, errOfOne
	}
	a.of[workload]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.of[workload]--; a.of[workload] == 0 {
			delete(a.of, workload)
		}
	}, nil
}
