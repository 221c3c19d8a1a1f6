package supervise

import (
	"os"
	"reflect"
	"sync"

	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// ledger records which settings of a plan its lives took, and which they refused: secrets change
// with their files. Which one life has, and which it is being offered, its [offers] say. While
// there are settings that a life took, none is left without settings because it refuses others or
// does not survive them. It is safe for concurrent use.
type ledger struct {
	mu    sync.Mutex
	good  *reference.Resolved // the last that a life took, of this plan or one before; nil: none
	taken bool                // a life of this plan took some: they need no validation
	tried *trial              // what no life took since; nil: nothing
}

// trial is an offer that was not taken.
type trial struct {
	offer
	err   error
	final bool // there is no use in asking again while no file changes
}

// order returns what to send to a new life, in order, until it takes one.
func (b *ledger) order(now offer) []offer {
	b.mu.Lock()
	defer b.mu.Unlock()
	good := offer{told: b.good}
	switch {
	case b.isGood(now):
		b.tried = nil
		return []offer{now}
	case !b.knows(now):
		return []offer{now, good}
	case b.tried.final:
		return []offer{good}
	}
	return []offer{good, now}
}

// isGood reports whether there is nothing else to take. b.mu is held.
func (b *ledger) isGood(o offer) bool { return b.good == nil || same(b.good, o.told) }

// knows reports whether an offer was not taken before. b.mu is held.
func (b *ledger) knows(o offer) bool {
	return b.tried != nil && same(b.tried.told, o.told) && b.tried.files.equal(o.files)
}

// declines reports whether this is not to be sent again, or only when it is due.
func (b *ledger) declines(o offer, due bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.knows(o) && (b.tried.final || !due)
}

// hopeless reports whether there is no use in sending what was not taken again.
func (b *ledger) hopeless() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tried != nil && b.tried.final
}

// take notes settings that a life took.
func (b *ledger) take(o offer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isGood(o) {
		b.tried = nil
	}
	b.good, b.taken = o.told, true
}

// proven reports whether a life of the plan took its settings.
func (b *ledger) proven() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// isOther reports whether an earlier life took something else.
func (b *ledger) isOther(o offer) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.isGood(o)
}

// turnDown notes settings that a life did not take; ended means that it did not survive them.
// It reports whether an earlier life took something else.
func (b *ledger) turnDown(o offer, err error, ended bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isGood(o) {
		return false
	}
	b.tried = &trial{o, err, ended || ca.ReasonFor(err) == ca.Invalid}
	return true
}

// last returns the last settings that a life took, or nil.
func (b *ledger) last() *reference.Resolved {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.good
}

// forget forgets what was not taken, and reports whether there was anything.
func (b *ledger) forget() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	had := b.tried != nil
	b.tried = nil
	return had
}

// why returns why the current settings are not in use; empty if they are.
func (b *ledger) why() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tried == nil {
		return ""
	}
	return text.Clean(b.tried.err.Error())
}

func same(a, b *reference.Resolved) bool { return reflect.DeepEqual(a.Settings, b.Settings) }

// stamps distinguish versions of files without reading them.
type stamps []os.FileInfo

// look returns the stamps of files, of which a missing one has none.
func look(paths []string) (seen stamps) {
	for _, path := range paths {
		info, _ := os.Stat(path)
		seen = append(seen, info)
	}
	return seen
}

func (s stamps) equal(other stamps) bool {
	if len(s) != len(other) {
		return false
	}
	for i, a := range s {
		switch b := other[i]; {
		case a == nil || b == nil:
			if a != b {
				return false
			}
		case !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()):
			return false
		}
	}
	return true
}
