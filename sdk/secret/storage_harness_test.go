package secret_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// memory is a Storage that outlives an engine.
type memory struct {
	mu      sync.Mutex
	records map[string]secret.Record
	fault   error
	hang    chan struct{} // closed when calls may go on; nil: they do
	slow    time.Duration // what Store takes
	reading time.Duration // what Load takes
}

func (m *memory) begin() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hang != nil {
		hang := m.hang
		m.mu.Unlock()
		<-hang
		m.mu.Lock()
	}
	return m.fault
}

func (m *memory) Load(_ context.Context, name string) (secret.Record, error) {
	err := m.begin()
	time.Sleep(m.reading)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[name], err
}

func (m *memory) Store(_ context.Context, name string, r secret.Record) error {
	if err := m.begin(); err != nil {
		return err
	}
	time.Sleep(m.slow)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records = map[string]secret.Record{}
	}
	m.records[name] = r
	if len(r.Content) == 0 {
		delete(m.records, name)
	}
	return nil
}

func (m *memory) setFault(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = err
}

func (m *memory) names() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.records {
		names = append(names, name)
	}
	return names
}

func (m *memory) copy() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{records: maps.Clone(m.records)}
}

// outage is a CA that may be away: nothing of it answers then.
type outage struct {
	*catest.CA
	facts ca.Facts
	mu    sync.Mutex
	away  bool
}

var errAway = ca.Errorf(ca.Unavailable, "the CA is away")

func (o *outage) set(away bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = away
}

func (o *outage) isAway() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.away
}

func (o *outage) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if o.isAway() {
		return ca.Certificate{}, errAway
	}
	cert, err := o.CA.CSRSign(ctx, req)
	cert.Facts = o.facts
	return cert, err
}

func (o *outage) WatchRoots(ctx context.Context, changed func([]byte) error) error {
	if o.isAway() {
		return errAway
	}
	return o.CA.WatchRoots(ctx, changed)
}

// kept is an engine with a Storage that can be started again.
type kept struct {
	*engine
	t     *testing.T
	store *memory
	ca    *outage
}

func newKept(t *testing.T, change func(*secret.Config)) *kept {
	t.Helper()
	k := &kept{t: t, store: &memory{}}
	k.engine = newEngine(t, func(c *secret.Config) {
		k.ca = &outage{CA: c.Authorities[0].Client.(*catest.CA)}
		k.settle(c, change)
	})
	return k
}

func (k *kept) settle(c *secret.Config, change func(*secret.Config)) {
	c.Authorities[0].Client, c.Storage = k.ca, k.store
	if change != nil {
		change(c)
	}
}

// restart ends the engine and starts another one, whose settings change may change. It
// does not wait for anything.
func (k *kept) restart(change func(*secret.Config)) {
	k.t.Helper()
	k.Close()
	old := k.engine
	k.engine = newEngine(k.t, func(c *secret.Config) {
		c.Now = old.now
		k.settle(c, change)
	})
	k.engine.ca = old.ca
}

// peek returns what is held at this very moment.
func (k *kept) peek(name string) *secret.Item {
	k.t.Helper()
	item, err := k.Peek(agent, name)
	if err != nil {
		k.t.Fatalf("%v\n%s", err, k.logged())
	}
	return item
}
