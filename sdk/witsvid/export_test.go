package witsvid

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// FillReplays takes all the places that a sender may have.
func (v *Verifier) FillReplays(trustDomain, sender string) {
	r := v.domains[trustDomain].replays
	now := rotation.Now(v.cfg.Now())
	for i := uint64(0); ; i++ {
		if r.take(sender, fmt.Sprintf("fill %x", binary.AppendUvarint(nil, i)), now.Wall.Add(time.Minute), now) != nil {
			return
		}
	}
}
