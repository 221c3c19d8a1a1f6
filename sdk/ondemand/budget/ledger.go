package budget

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/tokenbucket"
)

// kind is what a counter is for.
type kind string

const (
	rules    kind = "rule"
	accounts kind = "account"
	domains  kind = "domain"
	sets     kind = "set"
	failed   kind = "failed"
)

// maxCounters bounds the counters of each kind. A saved ledger has some megabytes at most.
const maxCounters = 10_000

// saveEvery is how soon a change is saved, and a failed save repeated.
const saveEvery = time.Second

// stateVersion is the version of what MarshalBinary returns.
const stateVersion = 1

// Ledger has the counters of all budgets of a program. It goes by the wall clock, as it outlives the
// process: a clock that goes back gains nothing. It is safe for concurrent use.
type Ledger struct {
	now func() time.Time

	mu       sync.Mutex
	counters map[kind]map[string]*tokenbucket.Bucket
	changed  bool
	lost     time.Time // see Lose; zero if the counts are complete
}

// NewLedger returns a ledger without counts. Now is the wall clock for failures. Default: the system's.
func NewLedger(now func() time.Time) *Ledger {
	if now == nil {
		now = clock.Wall
	}
	l := &Ledger{now: now}
	l.reset()
	return l
}

func (l *Ledger) reset() {
	l.counters = map[kind]map[string]*tokenbucket.Bucket{}
	for _, k := range []kind{rules, accounts, domains, sets, failed} {
		l.counters[k] = map[string]*tokenbucket.Bucket{}
	}
}

// Lose has all counters but those of failures begin as used up, because what was spent is not known: a
// state cannot be read. They refill at their rates.
func (l *Ledger) Lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost, l.changed = l.now(), true
}

// look returns a counter that may be new. The caller holds the lock, and only reads it.
func (l *Ledger) look(c count) *tokenbucket.Bucket {
	if b := l.counters[c.kind][c.key]; b != nil {
		return b
	}
	if c.spend && !l.lost.IsZero() {
		if now := l.now(); now.Before(l.lost) { // the clock went back
			l.lost = now
		}
		return &tokenbucket.Bucket{Spent: c.rate.burst(), Last: l.lost}
	}
	return &tokenbucket.Bucket{}
}

// at returns a counter to be changed. The caller holds the lock.
func (l *Ledger) at(c count, now time.Time) *tokenbucket.Bucket {
	l.changed = true
	all := l.counters[c.kind]
	if all[c.key] == nil {
		if len(all) >= maxCounters {
			forget(all, now, c.rate)
		}
		all[c.key] = l.look(c)
		all[c.key].Gain(now, c.rate.perSecond())
	}
	return all[c.key]
}

// forget drops a quarter of the counters: those with the least spent by now, by the rate of the one that
// needs room. So a stranger who spends for many domains once does not reset one that spent much. The
// others stay as they are, as they may have another rate.
func forget(all map[string]*tokenbucket.Bucket, now time.Time, rate Rate) {
	keys, spent := make([]string, 0, len(all)), make(map[string]float64, len(all))
	for key, b := range all {
		later := *b
		later.Gain(now, rate.perSecond())
		keys, spent[key] = append(keys, key), later.Spent
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(spent[a], spent[b]) })
	for _, key := range keys[:len(keys)/4] {
		delete(all, key)
	}
}

// saved is the form of a ledger on disk.
type saved struct {
	Version  int                             `json:"version"`
	Lost     int64                           `json:"lost,omitempty"` // seconds since 1970; 0: never
	Counters map[kind]map[string]savedBucket `json:"counters"`
}

// savedBucket has what is spent as of a time, in seconds since 1970.
type savedBucket [2]float64

// MarshalBinary returns the counts, for UnmarshalBinary. They hold names and no secret.
func (l *Ledger) MarshalBinary() ([]byte, error) {
	return json.Marshal(l.copy())
}

// copy returns the counts. They are encoded without the lock, which orders wait for.
func (l *Ledger) copy() saved {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := saved{Version: stateVersion, Counters: map[kind]map[string]savedBucket{}}
	if !l.lost.IsZero() {
		s.Lost = l.lost.Unix()
	}
	for k, all := range l.counters {
		s.Counters[k] = make(map[string]savedBucket, len(all))
		for key, b := range all {
			if b.Spent > 0 {
				s.Counters[k][key] = savedBucket{b.Spent, float64(b.Last.UnixMilli()) / 1000}
			}
		}
	}
	return s
}

// UnmarshalBinary replaces the counts. After an error the ledger is as before.
func (l *Ledger) UnmarshalBinary(data []byte) error {
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("invalid state of the budgets: %w", err)
	}
	if s.Version != stateVersion {
		return fmt.Errorf("invalid state of the budgets: it has version %d, this program supports %d", s.Version, stateVersion)
	}
	for _, all := range s.Counters {
		if len(all) > maxCounters {
			return fmt.Errorf("invalid state of the budgets: %d counters of a kind, %d are allowed", len(all), maxCounters)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reset()
	now := l.now()
	l.lost = time.Time{}
	if s.Lost != 0 {
		l.lost = savedBucket{0, float64(s.Lost)}.bucket(now).Last
	}
	for k, all := range s.Counters {
		if l.counters[k] == nil {
			continue // of a later program
		}
		for key, b := range all {
			l.counters[k][key] = b.bucket(now)
		}
	}
	return nil
}

// bucket restores a counter. A time in the future is one of a clock that was wrong.
func (b savedBucket) bucket(now time.Time) *tokenbucket.Bucket {
	last := now
	if b[1] < float64(now.Unix()) {
		last = time.UnixMilli(int64(max(b[1], 0) * 1000))
	}
	return &tokenbucket.Bucket{Spent: min(max(b[0], 0), maxCount), Last: last}
}

// Run saves the counts within a second of each change, until ctx ends, and then once more. save gets
// what MarshalBinary returns; it is called from one goroutine. What was spent in the last second does not
// count after the process was killed: that is the burst of a budget at most.
func (l *Ledger) Run(ctx context.Context, save func(ctx context.Context, state []byte) error, log *slog.Logger) {
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			if err := l.save(last, save); err != nil {
				log.Error("failed to save the budgets: what was ordered lately will not count", "error", err)
			}
			return
		case <-ticker.C:
		}
		err := l.save(ctx, save)
		if err != nil && !failing {
			log.Error("failed to save the budgets: what is ordered will not count after a restart", "error", err)
		}
		failing = err != nil
	}
}

func (l *Ledger) save(ctx context.Context, save func(context.Context, []byte) error) error {
	l.mu.Lock()
	changed := l.changed
	l.changed = false
	l.mu.Unlock()
	if !changed {
		return nil
	}
	state, err := l.MarshalBinary()
	if err == nil {
		err = save(ctx, state)
	}
	if err != nil {
		l.mu.Lock()
		l.changed = true
		l.mu.Unlock()
	}
	return err
}
