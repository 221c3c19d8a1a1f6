package kubeca

import (
	"sync"
	"time"
)

const (
	// keptFor is how long a certificate is remembered for a repeat of its request whose reply
	// was lost: its object is gone.
	keptFor   = 10 * time.Minute
	maxIssued = 1024
)

// issued remembers what was issued, by the names of the objects. It is safe for concurrent use.
type issued struct {
	mu   sync.Mutex
	held map[string]kept
}

type kept struct {
	status status
	until  time.Time
}

func newIssued() *issued { return &issued{held: map[string]kept{}} }

func (i *issued) of(name string, now time.Time) (status, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	found, ok := i.held[name]
	return found.status, ok && now.Before(found.until)
}

func (i *issued) keep(name string, got status, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for one, other := range i.held {
		if !now.Before(other.until) {
			delete(i.held, one)
		}
	}
	for one := range i.held {
		if len(i.held) < maxIssued {
			break
		}
		delete(i.held, one)
	}
	got.Conditions = nil
	i.held[name] = kept{got, now.Add(keptFor)}
}
