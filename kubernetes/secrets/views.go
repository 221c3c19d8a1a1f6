package secrets

import (
	"errors"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/access"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Watched is the current state of an object that a caller watches and may have.
type Watched struct {
	Cluster, Namespace, Name string
	Kind                     Kind
	// CA is false for a certificate with its key.
	CA    bool
	State State
	// Ends is when the first of its certificates expires, those of the version that is
	// served; zero for a [Broken] one that is not.
	Ends time.Time
	// Problem says what a [Broken] one lacks; Kept that its last good version is served.
	Problem string
	Kept    bool
}

// views records the last answers given to watchers. Every change wakes all watchers, so
// it is current. It is safe for concurrent use.
type views struct {
	mu sync.Mutex
	of map[viewer]*view
}

// viewer is everything an answer depends on besides the objects. Admission was checked
// before.
type viewer struct {
	access.Subject
	name string
}

type view struct {
	watchers int
	sight
}

// sight is the certificate or CA that was found; without a part it is none.
type sight struct {
	part
	lifetime
	err  error
	kept bool
}

// part is one of the two forms an object can be served in.
type part struct {
	place
	ca bool
}

func newViews() *views { return &views{of: map[viewer]*view{}} }

func (v *views) watch(r request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := viewer{r.subject, r.name}
	if v.of[key] == nil {
		v.of[key] = &view{}
	}
	v.of[key].watchers++
}

func (v *views) leave(r request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := viewer{r.subject, r.name}
	if v.of[key].watchers--; v.of[key].watchers == 0 {
		delete(v.of, key)
	}
}

// note records what an answer was built from.
func (v *views) note(r request, o object, p product) {
	v.set(r, sight{part{o.place, r.ca}, p.lifetime, p.err, p.err != nil && p.resource != nil})
}

// nothing records the error of a caller without an answer. Until the resource is ready,
// the client keeps what it has.
func (v *views) nothing(r request, err error) {
	if !errors.Is(err, xds.ErrNotReady) {
		v.set(r, sight{})
	}
}

func (v *views) set(r request, found sight) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if view := v.of[viewer{r.subject, r.name}]; view != nil {
		view.sight = found
	}
}

// Watched returns each watched object once if a watcher may have it, a certificate and
// its CA separately, in no particular order.
func (s *Source) Watched() []Watched {
	now := s.cfg.Now()
	var all []Watched
	for _, found := range s.seen.distinct() {
		all = append(all, found.watched(now))
	}
	return all
}

func (v *views) distinct() map[part]sight {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := map[part]sight{}
	for _, view := range v.of {
		if view.part != (part{}) {
			all[view.part] = view.sight
		}
	}
	return all
}

func (s sight) watched(now time.Time) Watched {
	w := Watched{Cluster: s.cluster, Namespace: s.namespace, Name: s.name, Kind: s.kind, CA: s.ca, State: Broken, Ends: s.ends}
	if s.err != nil {
		w.Problem, w.Kept = text.Clean(s.err.Error()), s.kept
		return w
	}
	w.State = s.state(now)
	return w
}
