package ra

import (
	"crypto/x509"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// hold keeps an authority from being asked while it signs below a root that is not everywhere.
type hold struct {
	root  *x509.Certificate // nil: there is no hold
	why   error
	until time.Time // monotonic
}

// heldAgain is when to ask again at the latest for what is held back: it may be over before its time.
const heldAgain = 15 * time.Second

func (h *hold) begin(root *x509.Certificate, wait time.Duration) {
	h.root = root
	h.why = fmt.Errorf("it signs below the root %s, which is not published for long enough yet", pki.Fingerprint(root))
	h.until = time.Now().Add(wait)
}

// left returns how long nothing is asked yet.
func (h *hold) left(now time.Time) time.Duration { return max(0, h.until.Sub(now)) }

// endedBy ends the hold if its root is trusted now, and reports whether it did.
func (h *hold) endedBy(trusted *pki.Bundle) bool {
	ends := h.root != nil && trusted.Contains(h.root)
	if ends {
		h.root, h.until = nil, time.Time{}
	}
	return ends
}
