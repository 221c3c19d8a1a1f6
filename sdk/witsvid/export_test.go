package witsvid

import (
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// BoundReplays changes how many proofs of a trust domain are remembered: those of each sender, and those
// that its senders share. It returns what the bounds were.
func (v *Verifier) BoundReplays(trustDomain string, own, common int) [2]int {
	places := &v.domains[trustDomain].replays.places
	before := [2]int{places.Own, places.Common}
	places.Own, places.Common = own, common
	return before
}

// FillReplays takes all the places that a sender may still have, and returns how many these are.
func (v *Verifier) FillReplays(trustDomain, sender string) int {
	return v.fill(trustDomain, func(int) string { return sender })
}

// FillSenders takes a place for one new sender after another, and returns for how many there is one.
func (v *Verifier) FillSenders(trustDomain string) int {
	return v.fill(trustDomain, func(i int) string { return fmt.Sprintf("spiffe://%s/fill/%d", trustDomain, i) })
}

func (v *Verifier) fill(trustDomain string, sender func(int) string) int {
	now := rotation.Now(v.cfg.Now())
	for i := 0; ; i++ {
		if v.domains[trustDomain].replays.take(sender(i), fmt.Sprint("fill ", i), now.Wall.Add(time.Minute), now) != nil {
			return i
		}
	}
}
