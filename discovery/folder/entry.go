package folder

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/internal/text"
)

// entry tracks one file of the folder over time.
type entry struct {
	name    string
	seen    fileState // the most recent one
	since   time.Time
	taken   fileState // the fileState that was parsed
	gone    bool
	latest  *file // nil if the last parse failed: fault is why
	fault   error
	good    *file // the last one served
	served  *file // nil: nothing is served from it
	refusal error // why latest is not served
	warned  []string
}

// fileState is the state of a file at one look.
type fileState struct {
	listed  bool
	sum     digest // of the content, or of the read error
	content []byte
	err     error
}

var errTotal = errors.New("the files in the folder would exceed 64 MiB")

// see reads a file. total counts the bytes read in this look.
func (e *entry) see(folder string, listed bool, total *int) fileState {
	s := fileState{listed: listed, err: fs.ErrNotExist}
	if listed && *total <= maxTotal { // beyond the limit nothing more is read
		s.content, s.err = safefile.Read(filepath.Join(folder, e.name), maxFile)
	}
	if *total += len(s.content); *total > maxTotal {
		s.err = errTotal
	}
	if s.err != nil {
		s.content = nil
		s.err = says(s.err)
		s.sum = sha256.Sum256([]byte(fmt.Sprintf("%t error: %s", s.listed, s.err)))
		return s
	}
	s.sum = sha256.Sum256(s.content)
	return s
}

// take parses what was seen if it is new and has been stable for long enough, and
// reports whether it did.
func (e *entry) take(s fileState, now time.Time, settle time.Duration) bool {
	if s.sum != e.seen.sum {
		e.seen, e.since = fileState{sum: s.sum}, now
	}
	if s.sum == e.taken.sum || !now.IsZero() && now.Sub(e.since) < settle {
		return false
	}
	e.taken = fileState{sum: s.sum}
	e.gone = !s.listed
	e.latest, e.fault = nil, s.err
	if s.err == nil {
		e.latest, e.fault = parse(s.content)
	}
	return true
}

// join adds the file to a generation: its latest content, else its last good content.
func (e *entry) join(g *generation, log *slog.Logger) {
	before := e.refusal
	e.served, e.refusal = nil, e.fault
	if e.latest != nil {
		if e.refusal = g.add(e.name, e.latest); e.refusal == nil {
			e.good, e.served = e.latest, e.latest
		}
	}
	if e.served == nil && e.good != nil && g.add(e.name, e.good) == nil {
		e.served = e.good
	}
	if e.refusal != nil && (before == nil || before.Error() != e.refusal.Error()) {
		log.Warn("resource file rejected", "file", e.name, "reason", e.reason(), "last_good_served", e.served != nil)
	}
}

// warn logs references in the served file that no file resolves.
func (e *entry) warn(g *generation) {
	e.warned = nil
	if e.served != nil {
		e.warned = g.warnings(e.served)
	}
}

// reason returns one sentence on why the file was rejected.
func (e *entry) reason() string {
	if e.refusal == nil {
		return ""
	}
	return text.Clean(e.name) + ": " + e.refusal.Error()
}
