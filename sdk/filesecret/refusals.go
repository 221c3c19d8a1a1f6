package filesecret

import (
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
)

// refusals logs rejected names, at most ten per minute, as clients choose them.
type refusals struct {
	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex
	since time.Time
	said  int
}

func (r *refusals) tell(name string, why error) {
	if !isDynamic(name) {
		return // another source may have it
	}
	if r.count() {
		r.log.Warn("file name refused", "name", text.Clean(name), "error", text.Clean(why.Error()))
	}
}

func (r *refusals) count() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); now.Sub(r.since) >= time.Minute {
		r.since, r.said = now, 0
	}
	r.said++
	return r.said <= 10
}
