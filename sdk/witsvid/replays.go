package witsvid

import (
	"container/heap"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/share"
)

const (
	ownProofs    = 256
	commonProofs = 1 << 16
	maxSenders   = 1024
	// maxBack bounds how far a clock that is set back has proofs refused. After a longer way back,
	// WIT-SVIDs that were issued before are in the future, and refused for that.
	maxBack = time.Hour
)

// replays remembers the proofs of one trust domain until they end. No proof is forgotten before: a
// sender that has too many is refused another.
type replays struct {
	mu      sync.Mutex
	places  share.Places
	senders map[string]map[proofID]struct{} // by SPIFFE ID
	running proofHeap                       // by the end on the monotonic clock
	over    proofHeap                       // over on the monotonic clock; by the end on the wall clock
	// forgotten is the last end of the proofs that were forgotten. Whether a proof that ends before was
	// used is not known.
	forgotten time.Time
}

// proofID is a hash of the claim jti: senders choose how long that is.
type proofID [16]byte

// seenProof is over once both clocks say so: a wall clock that is set forward and back again must not
// make room for a proof that is still good, nor a monotonic one that stands still.
type seenProof struct {
	ends   time.Time // by the clock of its heap
	wall   time.Time
	sender string
	id     proofID
}

func newReplays() *replays {
	return &replays{places: share.Places{Own: ownProofs, Common: commonProofs}, senders: map[string]map[proofID]struct{}{}}
}

// take notes a proof that ends at that time, or returns why it must be refused.
func (r *replays) take(sender, jti string, ends time.Time, now rotation.Time) error {
	sum := sha256.Sum256([]byte(jti))
	id := proofID(sum[:])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	seen := r.senders[sender]
	if _, twice := seen[id]; twice {
		return errors.New("its proof was used before")
	}
	if back := r.forgotten.Sub(ends); back >= 0 && back < maxBack {
		return ca.Errorf(ca.Unavailable, "failed to check that its proof was not used before: later ones are forgotten, as the clock was set back")
	}
	if seen == nil && len(r.senders) >= maxSenders {
		return ca.Errorf(ca.RateLimited, "proofs of %d senders of this trust domain are remembered, no more are allowed", maxSenders)
	}
	if !r.places.Take(len(seen)) {
		return ca.Errorf(ca.RateLimited, "%d proofs of this sender are remembered, no more are allowed", len(seen))
	}
	if seen == nil {
		seen = map[proofID]struct{}{}
		r.senders[sender] = seen
	}
	seen[id] = struct{}{}
	heap.Push(&r.running, seenProof{now.Mono.Add(ends.Sub(now.Wall)), ends, sender, id})
	return nil
}

// forget drops the proofs that are over.
func (r *replays) forget(now rotation.Time) {
	for r.running.ended(now.Mono) {
		over, _ := heap.Pop(&r.running).(seenProof)
		over.ends = over.wall
		heap.Push(&r.over, over)
	}
	for r.over.ended(now.Wall) {
		over, _ := heap.Pop(&r.over).(seenProof)
		r.drop(over)
		r.forgotten = clock.Later(r.forgotten, over.wall)
	}
}

func (r *replays) drop(p seenProof) {
	seen := r.senders[p.sender]
	r.places.Give(len(seen))
	if delete(seen, p.id); len(seen) == 0 {
		delete(r.senders, p.sender)
	}
}

// proofHeap has the proof first that ends first.
type proofHeap []seenProof

// ended reports whether the first proof is over.
func (h proofHeap) ended(now time.Time) bool { return len(h) > 0 && !now.Before(h[0].ends) }

func (h proofHeap) Len() int           { return len(h) }
func (h proofHeap) Less(i, j int) bool { return h[i].ends.Before(h[j].ends) }
func (h proofHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements [heap.Interface].
func (h *proofHeap) Push(x any) {
	if p, ok := x.(seenProof); ok {
		*h = append(*h, p)
	}
}

// Pop implements [heap.Interface].
func (h *proofHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = seenProof{}
	*h = old[:len(old)-1]
	return last
}
