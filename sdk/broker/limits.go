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
// streams anew.
const (
	maxStreams        = 4096
	maxAtOnce         = 64 // references that are being resolved; more wait
	maxOfWorkload     = 32 // streams and calls of one workload
	callsBurst        = 8192
	callsPerSecond    = 400.0
	identityBurst     = 2048 // calls of one identity
	identityPerSecond = 100.0
	identities        = 4096 // whose calls are remembered
	missedBurst       = 128  // references to workloads that do not exist
	missedRemember    = 1024
	missedFor         = time.Minute   // a repeat within this time counts no more
	scanTime          = 3 * time.Hour // for all that a broker may refer to
)

// account is what one broker uses. Only lookups that find no workload share a budget, as nothing says
// whose they are: what one workload has its broker ask is otherwise counted for its identity, so that
// it cannot use up what others need.
type account struct {
	id    string
	slots chan struct{} // of references that are being resolved

	mu      sync.Mutex
	allowed []Reference                             // none: it is no longer on the list
	calls   tokenbucket.Bucket                      // that were granted
	of      recent.Map[string, *tokenbucket.Bucket] // by identity
	missed  map[Reference]*tokenbucket.Bucket
	known   recent.Map[fingerprint, time.Time] // references that missed
	open    map[*call]struct{}
	streams map[string]int // by workload, and by identity
}

// fingerprint identifies a reference, which may be long.
type fingerprint [sha256.Size]byte

func fingerprintOf(reference *anypb.Any) fingerprint {
	return sha256.Sum256([]byte(reference.GetTypeUrl() + "\x00" + string(reference.GetValue())))
}

func newAccount(id string) *account {
	return &account{
		id: id, slots: make(chan struct{}, maxAtOnce), of: recent.New[string, *tokenbucket.Bucket](identities), missed: map[Reference]*tokenbucket.Bucket{},
		known: recent.New[fingerprint, time.Time](missedRemember), open: map[*call]struct{}{}, streams: map[string]int{},
	}
}

// enter counts a stream or call, also while it waits, and returns what ends it.
func (a *account) enter(c *call) (leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.open) >= maxStreams {
		return nil, errStreams
	}
	a.open[c] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.open, c)
	}, nil
}

// wait returns once the broker may have one more reference resolved. Else a broker could have any
// number of them looked up before the first is refused. One that missed lately has no turn to wait for:
// it counts no more, and a pod that is gone takes as long as one that is to come.
func (a *account) wait(ctx context.Context, reference fingerprint) (leave func(), err error) {
	if a.missedLately(reference, time.Now()) {
		return func() {}, nil
	}
	select {
	case a.slots <- struct{}{}:
		return func() { <-a.slots }, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (a *account) missedLately(reference fingerprint, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.repeated(reference, now)
}

var (
	errCalls      = status.Error(codes.ResourceExhausted, "this broker makes too many calls; wait before the next one")
	errOfIdentity = status.Error(codes.ResourceExhausted, "this broker makes too many calls, or has too many streams open, for workloads of this identity")
	errMissed     = status.Error(codes.ResourceExhausted, "this broker has referred to too many workloads that do not exist; wait before the next reference")
	errStreams    = status.Error(codes.ResourceExhausted, "this broker has too many streams open")
	errOfOne      = status.Error(codes.ResourceExhausted, "this broker has too many streams open for this workload")
)

// begin returns an error if the reference may not be looked up now.
func (a *account) begin(kind Reference, reference fingerprint, perSecond float64, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if missed := a.missed[kind]; missed != nil && !a.repeated(reference, now) && missed.Wait(now, perSecond, missedBurst) > 0 {
		return errMissed
	}
	return nil
}

// repeated reports whether the reference missed a short time ago: asking again reveals nothing new.
func (a *account) repeated(reference fingerprint, now time.Time) bool {
	at, ok := a.known.Get(reference)
	return ok && now.Sub(at) < missedFor
}

// miss counts a reference to a workload that does not exist.
func (a *account) miss(kind Reference, reference fingerprint, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.repeated(reference, now) {
		return
	}
	if a.missed[kind] == nil {
		a.missed[kind] = &tokenbucket.Bucket{}
	}
	a.missed[kind].Spend()
	a.known.Put(reference, now)
}

// spend counts a call for an identity; for the broker only if the identity's own budget allows it.
func (a *account) spend(id string, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	own, ok := a.of.Get(id)
	if !ok {
		own = &tokenbucket.Bucket{}
		a.of.Put(id, own)
	}
	switch {
	case own.Wait(now, identityPerSecond, identityBurst) > 0:
		return errOfIdentity
	case a.calls.Wait(now, callsPerSecond, callsBurst) > 0:
		return errCalls
	}
	own.Spend()
	a.calls.Spend()
	return nil
}

// take occupies one of the places of a workload and of its identity, which may have as many as are
// free: so a new identity finds one, however many the others have.
func (a *account) take(w Workload) (free func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one, all := "workload "+w.Name, "identity "+w.SPIFFEID
	switch {
	case a.streams[one] >= maxOfWorkload:
		return nil, errOfOne
	case a.streams[all] >= maxStreams-len(a.open):
		return nil, errOfIdentity
	}
	a.streams[one]++
	a.streams[all]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, key := range []string{one, all} {
			if a.streams[key]--; a.streams[key] == 0 {
				delete(a.streams, key)
			}
		}
	}, nil
}
