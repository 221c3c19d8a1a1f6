package podcert

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// knownFor is how long an object that was seen with a UID counts as being there.
	knownFor = time.Minute
	maxKnown = 20000
)

// name is that of a service account, or of a node, which has no namespace.
type name struct{ namespace, name string }

// known remembers for a moment which objects there are. It has no word in a refusal.
type known struct {
	mu   sync.Mutex
	seen map[name]sight
}

type sight struct {
	uid types.UID
	at  time.Time // monotonic
}

func newKnown() *known { return &known{seen: map[name]sight{}} }

// has reports whether the object was seen with that UID a moment ago.
func (k *known) has(n name, uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.seen[n]
	return ok && s.uid == uid && time.Since(s.at) < knownFor
}

func (k *known) note(n name, uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.seen) >= maxKnown {
		clear(k.seen)
	}
	k.seen[n] = sight{uid, time.Now()}
}
