package ondemand

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
)

// Uses keeps when names were last used over restarts, in one text. It is safe for concurrent use.
type Uses interface {
	// LoadUses returns what SaveUses was called with last; nothing if it was not called yet.
	LoadUses(context.Context) ([]byte, error)
	SaveUses(context.Context, []byte) error
}

const (
	usesVersion = 1
	// saveUses is how often the uses are saved. They are to the day.
	saveUses = 6 * time.Hour
	day      = 24 * time.Hour
)

// uses are the days, since 1970, on which unused names were last used, by a hash of the name: 100,000
// names take 1.2 MB when they are saved.
type uses map[[8]byte]uint32

func useKey(name string) (key [8]byte) {
	sum := sha256.Sum256([]byte(name))
	return [8]byte(sum[:8])
}

func dayOf(t time.Time) uint32 {
	return uint32(max(0, t.Unix()) / int64(day/time.Second)) //nolint:gosec // fits until the year 11,000,000
}

// last returns when a stored name was last used; now if that is not known, else at the end of the day.
func (u uses) last(name string, now time.Time) time.Time {
	at, ok := u[useKey(name)]
	if !ok || at >= dayOf(now) {
		return now
	}
	return time.Unix(int64(at+1)*int64(day/time.Second)-1, 0)
}

func (u uses) encode() []byte {
	out := []byte{usesVersion}
	for key, at := range u {
		out = binary.BigEndian.AppendUint32(append(out, key[:]...), at)
	}
	return out
}

// decodeUses reads what encode returned. It has no uses if the text is another one: the names then count
// as used at the start.
func decodeUses(text []byte) uses {
	u := uses{}
	if len(text)%12 != 1 || text[0] != usesVersion {
		return u
	}
	for rest := text[1:]; len(rest) > 0; rest = rest[12:] {
		u[[8]byte(rest[:8])] = binary.BigEndian.Uint32(rest[8:12])
	}
	return u
}

// readUses reads when names were last used in the last run.
func (s *Set) readUses() {
	if s.cfg.Uses == nil {
		return
	}
	text, err := call.Do(s.sched.Context, storageTimeout, call.NewTurn(), s.cfg.Uses.LoadUses)
	if err != nil {
		s.cfg.Log.Warn("cannot read when names on demand were last used: they count as used now", "error", err)
		return
	}
	s.uses = decodeUses(text)
}

// keepUses saves when names were last used, until Close, and then once more.
func (s *Set) keepUses() {
	turn := call.NewTurn()
	for {
		select {
		case <-s.sched.Context.Done():
			s.saveUses(context.WithoutCancel(s.sched.Context), turn)
			return
		case <-time.After(saveUses):
			s.saveUses(s.sched.Context, turn)
		}
	}
}

func (s *Set) saveUses(ctx context.Context, turn call.Turn) {
	text := s.lastUses().encode()
	_, err := call.Do(ctx, storageTimeout, turn, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.cfg.Uses.SaveUses(ctx, text)
	})
	if err != nil {
		s.cfg.Log.Warn("cannot save when names on demand were last used", "error", err)
	}
}

// lastUses returns the uses of names that were used on another day than today. What is not there counts
// as used at the start.
func (s *Set) lastUses() uses {
	s.sched.Lock()
	defer s.sched.Unlock()
	today, u := dayOf(s.sched.Now()), uses{}
	s.sched.Each(func(e *entry) {
		if at := dayOf(e.used); e.stored && e.watchers.Len() == 0 && at < today {
			u[useKey(e.name)] = at
		}
	})
	return u
}
