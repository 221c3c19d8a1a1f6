package broker

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/recent"
	"github.com/countersign-dev/countersign/internal/tokenbucket"
)

// The limits of one broker. A restart of the agent has a broker of 1,000 workloads open each of its
// streams anew; a scan of all PIDs is to take hours.
const (
	maxStreams      = 4096
	maxAtOnce       = 64 // references that are being resolved; more wait
	maxOfWorkload   = 32 // streams and calls of one workload
	callsBurst      = 8192
	callsPerSecond  = 100.0
	refusedBurst    = 128 // of different references
	refusedPer      = 1.0 // second
	refusedRemember = 1024
	refusedFor      = time.Minute // a repeat within this time counts no more
)

// account is what one broker uses.
type account struct {
	Broker
	slots chan struct{} // of references that are being resolved

	mu      sync.Mutex
	calls   tokenbucket.Bucket
	refused tokenbucket.Bucket
	known   recent.Map[fingerprint, time.Time] // references that were refused
	streams int
	of      map[string]int // by workload
}

// fingerprint identifies a reference, which may be long.
type fingerprint [sha256.Size]byte

func fingerprintOf(reference *anypb.Any) fingerprint {
	return sha256.Sum256([]byte(reference.GetTypeUrl() + "\x00" + string(reference.GetValue())))
}

func newAccount(b Broker) *account {
	return &account{Broker: b, slots: make(chan struct{}, maxAtOnce), known: recent.New[fingerprint, time.Time](refusedRemember), of: map[string]int{}}
}

// enter counts a stream or call, also while it waits, and returns what ends it.
func (a *account) enter() (end func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streams >= maxStreams {
		return nil, errStreams
	}
	a.streams++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.streams--
	}, nil
}

// wait returns once the broker may have one more reference resolved. Else a broker could have any
// number of them looked up before the first is refused.
func (a *account) wait(ctx context.Context) (leave func(), err error) {
	select {
	case a.slots <- struct{}{}:
		return func() { <-a.slots }, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

var (
	errCalls   = status.Error(codes.ResourceExhausted, "this broker makes too many calls; wait before the next one")
	errRefused = status.Error(codes.ResourceExhausted, "too many references of this broker were refused; wait before the next one")
	errStreams = status.Error(codes.ResourceExhausted, "this broker has too many streams open")
	errOfOne   = status.Error(codes.ResourceExhausted, "this broker has too many streams open for this workload")
)

// begin counts a call whose reference is to be resolved.
func (a *account) begin(reference fingerprint, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.calls.Wait(now, callsPerSecond, callsBurst) > 0:
		return errCalls
	case !a.repeated(reference, now) && a.refused.Wait(now, refusedPer, refusedBurst) > 0:
		return errRefused
	}
	a.calls.Spend()
	return nil
}

// repeated reports whether the reference was refused a short time ago: asking again reveals nothing new.
func (a *account) repeated(reference fingerprint, now time.Time) bool {
	at, ok := a.known.Get(reference)
	return ok && now.Sub(at) < refusedFor
}

// refuse counts a refused reference.
func (a *account) refuse(reference fingerprint, now time.Time) {
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
