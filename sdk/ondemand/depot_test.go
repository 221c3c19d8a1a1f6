package ondemand_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// runsOut is when a claim ends that is not kept.
const runsOut = 10 * time.Second

// depot is what several machines share. Its clock is that of no machine.
type depot struct {
	mu      sync.Mutex
	records map[string]secret.Record
	index   map[string]secret.Entry
	claims  map[string]*held
	most    map[string]int // claims of a name at once
	jump    time.Duration  // of its clock
}

// held is a claim.
type held struct {
	of   *machine
	name string
	made time.Time // by the clock of the depot
	kept time.Time // the last time
	left bool      // its process was killed, or has released it
}

// machine is the view that one machine has of a depot.
type machine struct {
	*depot
	mu   sync.Mutex
	away error        // of each call
	dead bool         // it hangs, and keeps no claim
	step func(string) // called before each step
	// fault, if set, is asked at the begin of each call.
	fault func(step string) error
	seen  map[string]secret.Entry
	poll  time.Duration // between two looks for changes
}

func newDepot() *depot {
	return &depot{records: map[string]secret.Record{}, index: map[string]secret.Entry{}, claims: map[string]*held{}, most: map[string]int{}}
}

func (d *depot) machine() *machine {
	return &machine{depot: d, seen: map[string]secret.Entry{}, poll: time.Second}
}

func (d *depot) has(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.records[name].Content) > 0
}

func (m *machine) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// begin is called at the begin of each call.
func (m *machine) begin(ctx context.Context, step string) error {
	m.mu.Lock()
	hook := m.step
	m.mu.Unlock()
	if hook != nil {
		hook(step)
	}
	m.mu.Lock()
	dead, away := m.dead, m.away
	if m.fault != nil && away == nil {
		away = m.fault(step)
	}
	m.mu.Unlock()
	if dead {
		<-ctx.Done()
		return ctx.Err()
	}
	return away
}

func (m *machine) Index(ctx context.Context) ([]secret.Entry, error) {
	if err := m.begin(ctx, "index"); err != nil {
		return nil, err
	}
	m.depot.mu.Lock()
	defer m.depot.mu.Unlock()
	m.seen = maps.Clone(m.index)
	return slices.Collect(maps.Values(m.index)), nil
}

func (m *machine) Load(ctx context.Context, name string) (secret.Record, error) {
	if err := m.begin(ctx, "load"); err != nil {
		return secret.Record{}, err
	}
	m.depot.mu.Lock()
	defer m.depot.mu.Unlock()
	return m.records[name], nil
}

func (m *machine) Store(ctx context.Context, e secret.Entry, r secret.Record) error {
	if err := m.begin(ctx, "store"); err != nil {
		return err
	}
	m.depot.mu.Lock()
	m.records[e.Name], m.index[e.Name] = r, e
	m.depot.mu.Unlock()
	return m.begin(ctx, "stored")
}

func (m *machine) Delete(ctx context.Context, name string) error {
	if err := m.begin(ctx, "delete"); err != nil {
		return err
	}
	m.depot.mu.Lock()
	defer m.depot.mu.Unlock()
	delete(m.records, name)
	delete(m.index, name)
	return nil
}

func (m *machine) Claim(ctx context.Context, name string) (secret.Claim, error) {
	if err := m.begin(ctx, "claim"); err != nil {
		return nil, err
	}
	m.depot.mu.Lock()
	defer m.depot.mu.Unlock()
	if before := m.claims[name]; before != nil && time.Since(before.lastKept()) < runsOut {
		return nil, secret.ErrClaimed
	}
	c := &held{of: m, name: name, made: time.Now().Add(m.jump), kept: time.Now()}
	m.claims[name] = c
	return c, nil
}

// lastKept is now, as long as the machine can keep its claims.
func (c *held) lastKept() time.Time {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.of.dead && c.of.away == nil && !c.left {
		c.kept = time.Now()
	}
	return c.kept
}

func (c *held) Held() bool { return time.Since(c.lastKept()) < runsOut/2 }

func (c *held) Made() time.Time { return c.made }

func (c *held) Release(ctx context.Context) error {
	c.of.set(func() { c.left = true }) // it runs out if it cannot be released
	if err := c.of.begin(ctx, "release"); err != nil {
		return err
	}
	c.of.depot.mu.Lock()
	defer c.of.depot.mu.Unlock()
	if c.of.claims[c.name] == c {
		delete(c.of.claims, c.name)
	}
	return nil
}

func (m *machine) pause() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.poll
}

func (m *machine) Changes(ctx context.Context, changed func(secret.Entry, bool)) error {
	for ctx.Err() == nil {
		if err := m.begin(ctx, "changes"); err != nil {
			return err
		}
		m.depot.mu.Lock()
		now := maps.Clone(m.index)
		m.depot.mu.Unlock()
		for name, e := range now {
			if m.seen[name] != e {
				changed(e, false)
			}
		}
		for name := range m.seen {
			if _, ok := now[name]; !ok {
				changed(secret.Entry{Name: name}, true)
			}
		}
		m.seen = now
		select {
		case <-ctx.Done():
		case <-time.After(m.pause()):
		}
	}
	return ctx.Err()
}

// fleet is some machines with one depot and one CA.
type fleet struct {
	*depot
	t        *testing.T
	ca       *authority
	engines  []*engine
	machines []*machine
}

// machines runs a test of n machines in a bubble.
func machines(t *testing.T, n int, change func(i int, c *ondemand.Config), test func(*fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{depot: newDepot(), t: t, ca: &authority{CA: catest.NewCA(catest.Options{})}}
		for i := range n {
			m := f.machine()
			f.machines = append(f.machines, m)
			f.engines = append(f.engines, newEngine(t, func(e *engine, c *ondemand.Config) {
				e.ca, c.Storage = f.ca, m
				e.useCA(f.ca)
				if change != nil {
					change(i, c)
				}
			}))
		}
		test(f)
	})
}

// useCA makes another CA that of the rule.
func (e *engine) useCA(a ca.Client) {
	e.t.Helper()
	err := e.manager.Reload(
		[]secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test", "other"}}},
		[]secret.Authority{{Name: "test", Client: a}, {Name: "other", Client: e.other}})
	if err != nil {
		e.t.Fatal(err)
	}
	synctest.Wait() // its roots verify what the others store
}

// distinct fails the test unless the CA got so many orders. A repeated one has the ID of before.
func (f *fleet) distinct(want int) {
	f.t.Helper()
	synctest.Wait()
	got := 0
	f.ca.ids.Range(func(any, any) bool { got++; return true })
	if got != want {
		f.t.Fatalf("the authority got %d orders, want %d\n%s", got, want, f.engines[0].tail())
	}
}

// kill ends a machine: nothing that it has begun is finished.
func (f *fleet) kill(i int) {
	m := f.machines[i]
	m.set(func() { m.dead = true })
	f.engines[i].Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.claims {
		if c.of == m {
			m.set(func() { c.left = true })
		}
	}
}
