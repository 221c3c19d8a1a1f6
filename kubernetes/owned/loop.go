package owned

import (
	"context"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/text"
)

const (
	// shortest is the time between two looks at least.
	shortest = time.Second
	// patience is how long a fault lasts before it is logged: the first seconds are expected to fail.
	patience = 10 * time.Second
	// quiet is the time between two log lines at least.
	quiet = time.Minute
)

// Loop keeps one object in line: it looks, writes where needed, and pauses. Set its fields before
// [Loop.Run]. Err and Rival are safe for concurrent use; the other methods are for Look.
type Loop struct {
	// Look reads the object and calls [Loop.Bring]. Required.
	Look func(context.Context) error
	// Rules bound the pauses. Required.
	Rules *Rules
	// Resync is the pause while nothing changes. Required.
	Resync time.Duration
	// Changed ends every pause. Touched reports events of the object, which end a pause unless it
	// follows a fault or a repair. Default: none.
	Changed, Touched <-chan struct{}
	// Adopt takes over an object without our label.
	Adopt bool
	// Held returns nil while this replica may write. Required.
	Held func() error
	// Log receives a line a minute at most, and one for each dispute. Required.
	Log *slog.Logger
	// What names the object in the log, and Lacks is the message while it is not as it should be.
	What, Lacks string

	mu     sync.Mutex
	looked bool // in this run
	err    error
	rival  string

	state
}

// state is that of one run. Only the goroutine of the run uses it.
type state struct {
	claim    Claim
	pace     Pace
	due      string // what the object had or was given: writing that again is a repair
	repaired bool   // by the last look
	repairs  int    // not logged yet
	writer   string // the other client that changed the object last, if known
	disputed bool   // and logged
	failing  time.Time
	logged   time.Time
}

// Step describes an object and the write that brings it in line.
type Step struct {
	// Found is nil if there is no object.
	Found *metav1.ObjectMeta
	// Unfit is why the object that was found cannot be changed, if so.
	Unfit error
	// Right is set if the object has what it should have.
	Right bool
	// Planned is set if the object lacks only what is new: to write that does not count as a repair.
	Planned bool
	// Due identifies what it should have.
	Due   string
	Write Write
}

// Run keeps the object until ctx ends. It may be called again after that, but not twice at once.
func (l *Loop) Run(ctx context.Context) {
	l.state = state{}
	l.set(nil, false)
	for {
		l.repaired = false
		err := l.Look(ctx)
		if ctx.Err() != nil {
			return // a call that the end of the run cut off is not a fault
		}
		l.note(err, time.Now())
		l.rest(ctx, err != nil)
	}
}

// Err returns why the object is not as it should be, or nil.
func (l *Loop) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.looked {
		return ErrNotWritten
	}
	return l.err
}

// Rival returns the client that keeps changing the object, if one does and it is known.
func (l *Loop) Rival() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rival
}

func (l *Loop) set(err error, looked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err, l.looked, l.rival = err, looked, ""; l.disputed {
		l.rival = l.writer
	}
}

// May returns an error if the object that was found is not ours to change.
func (l *Loop) May(s Step) error {
	switch {
	case s.Unfit != nil:
		return s.Unfit
	case s.Found == nil || l.Adopt || l.claim.Owns(s.Found.UID, Labelled(s.Found.Labels)):
		return nil
	}
	return ErrForeign
}

// Bring writes an object that is ours to change, unless it is right.
func (l *Loop) Bring(ctx context.Context, s Step) error {
	if err := l.May(s); err != nil {
		return err
	}
	if s.Found != nil {
		l.claim.Took(s.Found.UID)
	}
	if s.Found == nil || !s.Right || !Labelled(s.Found.Labels) {
		made, err := s.Write.Do(ctx, l.Held)
		if err != nil {
			return err
		}
		l.claim.Took(made)
		l.repaired = l.due == s.Due && !s.Planned
		if l.writer = ""; s.Found != nil {
			l.writer = Rival(s.Found.ManagedFields, "")
		}
	}
	l.due = s.Due
	return nil
}

// note records the result of a look, which sets the next pause.
func (l *Loop) note(err error, now time.Time) {
	if err != nil {
		l.pace.Failed(l.Rules, now)
		if l.failing.IsZero() {
			l.failing = now
		}
	} else {
		l.failing = time.Time{}
		l.pace.Right()
		if l.repaired {
			l.repairs++
			l.pace.Repaired(l.Rules, now)
		} else {
			l.pace.Calm(l.Rules, now)
		}
	}
	l.dispute()
	l.set(err, true)
	l.complain(err, now)
}

// dispute logs when another client starts or stops to keep writing.
func (l *Loop) dispute() {
	was := l.disputed
	switch l.disputed = l.pace.Disputed(); {
	case l.disputed && !was:
		l.Log.Error("another client keeps writing or deleting "+l.What+": turn off one of the two writers", "writer", l.writer)
	case was && !l.disputed:
		l.Log.Info("no other client writes " + l.What + " any more")
	}
}

func (l *Loop) complain(err error, now time.Time) {
	lasts := err != nil && now.Sub(l.failing) >= patience
	if !lasts && l.repairs == 0 || !l.logged.IsZero() && now.Sub(l.logged) < quiet {
		return
	}
	l.logged = now
	if l.repairs > 0 {
		l.Log.Warn("restored "+l.What+", which another client changed or deleted", "times", l.repairs)
		l.repairs = 0
	}
	if lasts {
		l.Log.Warn(l.Lacks, "error", text.Clean(err.Error()))
	}
}

// rest waits until there is something to do.
func (l *Loop) rest(ctx context.Context, failed bool) {
	select {
	case <-time.After(shortest):
	case <-ctx.Done():
	}
	wait := l.pace.Wait(time.Now(), true)
	over, late := time.NewTimer(wait), time.NewTimer(max(wait, l.Resync))
	defer over.Stop()
	defer late.Stop()
	var touched <-chan struct{} // not before the pause is over
	for {
		select {
		case <-over.C:
			if failed {
				return
			}
			touched = l.Touched
			continue
		case <-ctx.Done():
		case <-l.Changed:
		case <-touched:
		case <-late.C:
		}
		return
	}
}
