package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/polling"
)

// patience is how long a test waits for what must come. It is long, so that a slow
// machine fails no test; what comes late is judged by what it says, not by when.
const patience = 2 * time.Minute

// notice wakes everybody who waits for a change. It is used under the lock of what
// changes.
type notice struct{ changed chan struct{} }

func newNotice() notice { return notice{make(chan struct{})} }

func (n *notice) tell() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// await waits until done, which is called under mu after each change.
func await(t *testing.T, mu sync.Locker, n *notice, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		mu.Lock()
		ok, changed := done(), n.changed
		mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("waited %s in vain for %s", patience, what)
		}
	}
}

// poll waits for what tells nobody that it changed: /proc, a page.
func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	polling.Until(t, patience, what, done)
}
