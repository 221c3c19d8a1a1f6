package share

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/peers"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
)

const (
	defaultDuration = 15 * time.Second
	minDuration     = 3 * time.Second
	maxDuration     = 5 * time.Minute
	// beats are the reads in a Duration; they follow each other twice as fast after a fault. Attempts
	// are the writes of one beat, where others write as well. A beat may take a patience-th of it.
	beats    = 6
	attempts = 4
	patience = 3
	// again is the longest wait before the next of them.
	again = 50 * time.Millisecond
)

// ErrConflict is returned by a [Store] for a record that another has replaced meanwhile.
var ErrConflict = errors.New("another member has written the record meanwhile")

// Store keeps one record for all members.
type Store interface {
	// Load returns the record and its version; neither, without an error, if there is none. It
	// must be the latest, and not what a cache has.
	Load(ctx context.Context) (record []byte, version string, err error)
	// Save replaces the record of that version, or makes the first one if the version is empty.
	// The error wraps [ErrConflict] if there is another version by now. Any other error leaves
	// open whether it was saved.
	Save(ctx context.Context, record []byte, version string) error
}

// Config configures a [Keeper]. Store and Wants are required.
type Config struct {
	Store Store
	// Wants returns for each pool, which is a quota to divide, how much of it this member could
	// use: 1 is all of it. The pools are always the same. It must not block.
	Wants func() map[string]float64
	// Changed hears that the share of a pool may have grown. It must not block. Default: none.
	Changed func(pool string)
	// Member tells this member from any other, also from the one before it in the same place.
	// Default: the host name and a random part.
	Member string
	// Duration is how long a member that is gone keeps its share: 3 s to 5 minutes. All members
	// have the same. Default: 15 s.
	Duration time.Duration
	// Now is the wall clock. Default: [clock.Wall].
	Now func() time.Time
	// Log hears when the store cannot be reached, and when it can be again. Default:
	// [slog.Default].
	Log *slog.Logger
}

// Keeper keeps the shares of one member. It is safe for concurrent use.
type Keeper struct {
	cfg Config

	mu      sync.Mutex
	machine *machine
	members int
	fault   string
}

// Status is what a Keeper shows.
type Status struct {
	// Shares are the parts of each pool that this member may use now.
	Shares map[string]float64 `json:"shares"`
	// Members are all that were in the record, dead ones with a floor included.
	Members int `json:"members"`
	// Fault says why the record can be neither read nor written.
	Fault string `json:"fault,omitempty"`
}

// New checks the settings. It sends nothing, and the shares are zero.
func New(cfg Config) (*Keeper, error) {
	cfg.Duration = cmp.Or(cfg.Duration, defaultDuration)
	peers.Defaults(&cfg.Member, &cfg.Now, &cfg.Log)
	if cfg.Changed == nil {
		cfg.Changed = func(string) {}
	}
	switch {
	case cfg.Store == nil || cfg.Wants == nil:
		return nil, errors.New("share: Config needs Store and Wants")
	case cfg.Duration < minDuration || cfg.Duration > maxDuration:
		return nil, fmt.Errorf("share: the duration is %s; use %s to %s", cfg.Duration, minDuration, maxDuration)
	}
	return &Keeper{cfg: cfg, machine: newMachine(cfg.Member, cfg.Duration)}, nil
}

// Share returns the part of a pool that may be used now, from 0 to 1. It asks nobody; look at
// it before each use.
func (k *Keeper) Share(pool string) float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return float64(k.machine.share(k.now(), pool)) / whole
}

// Status returns the current status.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := Status{Shares: map[string]float64{}, Members: k.members, Fault: k.fault}
	for pool := range k.machine.held {
		s.Shares[pool] = float64(k.machine.share(k.now(), pool)) / whole
	}
	return s
}

func (k *Keeper) now() rotation.Time { return rotation.Now(k.cfg.Now()) }

// Run keeps the shares until ctx ends, and gives them back. Call it once.
func (k *Keeper) Run(ctx context.Context) {
	for {
		err := k.beat(ctx)
		k.note(err)
		select {
		case <-time.After(k.pause(err)):
		case <-ctx.Done():
			k.leave(context.WithoutCancel(ctx))
			return
		}
	}
}

// pause returns the time until the next beat. It is drawn, so that members do not stay in step.
func (k *Keeper) pause(err error) time.Duration {
	beat := k.cfg.Duration / beats
	beat -= mathrand.N(beat / 5)
	if err != nil {
		return beat / 2
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if left := k.machine.fresh(k.now()); left > 0 {
		return min(beat, left)
	}
	return beat
}

// beat reads and writes once, or more often where others write as well.
func (k *Keeper) beat(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.Duration/patience)
	defer cancel()
	for range attempts {
		if err = k.exchange(ctx, k.propose); !errors.Is(err, ErrConflict) {
			return err
		}
		select {
		case <-time.After(mathrand.N(again)):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// exchange writes what change makes of the record, if that says so.
func (k *Keeper) exchange(ctx context.Context, change func(found record) (next record, write bool)) error {
	found, version, err := k.read(ctx)
	if err != nil {
		return err
	}
	next, write := change(found)
	if !write {
		return nil
	}
	if err := next.check(); err != nil {
		return err // others would refuse it
	}
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	sent := k.look()
	if err := k.cfg.Store.Save(ctx, text, version); err != nil {
		return err
	}
	k.took(sent, len(next.Members))
	return nil
}

// read returns the record to go by. One of a newer version prolongs the share that there is.
func (k *Keeper) read(ctx context.Context) (found record, version string, err error) {
	text, version, err := k.cfg.Store.Load(ctx)
	if err != nil {
		return record{}, "", err
	}
	found, err = parse(text)
	k.mu.Lock()
	defer k.mu.Unlock()
	if errors.Is(err, peers.ErrNewer) {
		k.machine.keep(k.now())
		return record{}, "", fmt.Errorf("%w; until then this replica keeps its last share", err)
	}
	if found, err = k.machine.found(k.now(), found, err); err != nil {
		return record{}, "", fmt.Errorf("%w; it is replaced after %s", err, k.cfg.Duration)
	}
	return found, version, nil
}

func (k *Keeper) look() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.machine.look(k.now())
}

func (k *Keeper) propose(found record) (next record, write bool) {
	wants := map[string]int{}
	for pool, part := range k.cfg.Wants() {
		wants[pool] = int(min(max(part, 0), 1) * whole)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	next = k.machine.propose(k.now(), found, wants)
	return next, !k.machine.idle(k.now(), found, next)
}

func (k *Keeper) took(sent time.Duration, members int) {
	k.mu.Lock()
	k.machine.took(sent)
	k.members = members
	pools := make([]string, 0, len(k.machine.held))
	for pool := range k.machine.held {
		pools = append(pools, pool)
	}
	k.mu.Unlock()
	for _, pool := range pools {
		k.cfg.Changed(pool)
	}
}

// leave gives the shares back. If that fails, the others take them later.
func (k *Keeper) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.Duration/patience)
	defer cancel()
	for range attempts {
		err := k.exchange(ctx, func(found record) (record, bool) {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.machine.leave(found)
		})
		if !errors.Is(err, ErrConflict) {
			return
		}
	}
}

// note logs the first fault and the end of the last.
func (k *Keeper) note(err error) {
	fault := ""
	if err != nil {
		fault = text.Clean(err.Error())
	}
	k.mu.Lock()
	before := k.fault
	k.fault = fault
	k.mu.Unlock()
	switch {
	case before == "" && fault != "":
		k.cfg.Log.Warn("cannot share the authorities' quotas", "error", fault)
	case before != "" && fault == "":
		k.cfg.Log.Info("the authorities' quotas are shared again")
	}
}
