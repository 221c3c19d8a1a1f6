package pluginhost

import (
	"os"
	"reflect"
	"sync"

	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// ledger has the [verdicts] on the settings of a plan. It is safe for concurrent use.
type ledger struct {
	mu sync.Mutex
	is verdicts
}

// verdicts say which settings of a plan its lives took, and which they refused: secrets change
// with their files. Which one life has, and which it is being offered, its [offers] say. While
// there are settings that a life took, none is left without settings because it refuses others or
// does not survive them.
type verdicts struct {
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

func (b *ledger) read() verdicts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.is
}

// take notes settings that a life took.
func (b *ledger) take(o offer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.is.isGood(o) {
		b.is.tried = nil
	}
	b.is.good, b.is.taken = o.resolved, true
}

// turnDown notes settings that a life did not take; ended means that it did not survive them.
// It reports whether an earlier life took something else.
func (b *ledger) turnDown(o offer, err error, ended bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.is.isGood(o) {
		return false
	}
	b.is.tried = &trial{o, err, ended || ca.ReasonFor(err) == ca.Invalid}
	return true
}

// forget forgets what was not taken, and reports whether there was anything.
func (b *ledger) forget() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	had := b.is.tried != nil
	b.is.tried = nil
	return had
}

// order returns what to send to a new life, in order, until it takes one.
func (v verdicts) order(now offer) []offer {
	good := offer{resolved: v.good}
	switch {
	case v.isGood(now):
		return []offer{now}
	case !v.knows(now):
		return []offer{now, good}
	case v.tried.final:
		return []offer{good}
	}
	return []offer{good, now}
}

// isGood reports whether there is nothing else to take: no earlier life took other settings.
func (v verdicts) isGood(o offer) bool { return v.good == nil || same(v.good, o.resolved) }

// knows reports whether an offer was not taken before.
func (v verdicts) knows(o offer) bool {
	return v.tried != nil && same(v.tried.resolved, o.resolved) && v.tried.files.equal(o.files)
}

// declines reports whether this is not to be sent again, or only when it is due.
func (v verdicts) declines(o offer, due bool) bool { return v.knows(o) && (v.tried.final || !due) }

// hopeless reports whether there is no use in sending what was not taken again.
func (v verdicts) hopeless() bool { return v.tried != nil && v.tried.final }

// why returns why the current settings are not in use; empty if they are.
func (v verdicts) why() string {
	if v.tried == nil {
		return ""
	}
	return text.Clean(v.tried.err.Error())
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
