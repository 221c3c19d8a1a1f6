package ondemand_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 24 * time.Hour

// authority is a CA in memory that takes its time, and may be asked for its advice.
type authority struct {
	*catest.CA
	delay atomic.Int64 // a time.Duration
	hang  atomic.Bool
	hung  atomic.Pointer[ca.SignRequest] // the last request that hung
	most  atomic.Int64
	now   atomic.Int64
	ids   sync.Map // of the orders that came, also of those that hung
	// advises makes the authority advise to renew at once.
	advises, adviceHangs atomic.Bool
	calm                 atomic.Bool // it advises to renew much later
	advised              sync.Map    // when it advised to renew at once, by the certificate
}

func (a *authority) RenewalInfo(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	if a.adviceHangs.Load() {
		<-ctx.Done()
		return ca.RenewalInfo{}, ctx.Err()
	}
	if !a.advises.Load() {
		return ca.RenewalInfo{}, ca.ErrUnimplemented
	}
	if a.calm.Load() {
		return ca.RenewalInfo{Start: time.Now().Add(10 * time.Hour), End: time.Now().Add(11 * time.Hour)}, nil
	}
	a.advised.LoadOrStore(string(leaf), time.Now())
	return ca.RenewalInfo{Start: time.Now().Add(-2 * time.Hour), End: time.Now().Add(-time.Hour)}, nil
}

func (a *authority) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	a.ids.Store(req.ID, true)
	a.most.Store(max(a.most.Load(), a.now.Add(1)))
	defer a.now.Add(-1)
	if a.hang.Load() {
		a.hung.Store(&req)
		<-ctx.Done()
		return ca.Certificate{}, ctx.Err()
	}
	select {
	case <-time.After(time.Duration(a.delay.Load())):
	case <-ctx.Done():
		return ca.Certificate{}, ctx.Err()
	}
	return a.CA.CSRSign(ctx, req)
}

// asker decides as it is set to.
type asker struct {
	calls atomic.Int64
	mu    sync.Mutex
	say   func(ctx context.Context, name string) (bool, error)
}

func (a *asker) Allowed(ctx context.Context, name string) (bool, error) {
	a.calls.Add(1)
	a.mu.Lock()
	say := a.say
	a.mu.Unlock()
	return say(ctx, name)
}

func (a *asker) set(say func(ctx context.Context, name string) (bool, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.say = say
}

// answers returns a decider with one answer.
func answers(allowed bool, err error) func(context.Context, string) (bool, error) {
	return func(context.Context, string) (bool, error) { return allowed, err }
}

// budget is a number of orders.
type budget struct {
	left   atomic.Int64
	failed atomic.Int64
}

func (b *budget) Take(time.Time, string, []string, string) error {
	if b.left.Add(-1) < 0 {
		b.left.Store(0)
		return &ca.Error{Reason: ca.RateLimited, RetryAfter: time.Minute, Message: "the budget is used up"}
	}
	return nil
}

func (b *budget) Refund(time.Time, string, []string, string) { b.left.Add(1) }

func (b *budget) Failed(string) { b.failed.Add(1) }

// storage keeps records in memory. fault, onLoad and onDelete, if set, run before each Store, Load
// and Delete.
type storage struct {
	mu      sync.Mutex
	records map[string]secret.Record
	index   map[string]secret.Entry
	loads   int
	fault   func() error

	onLoad, onDelete func() error
}

// fails sets what happens at each Load and Delete.
func (s *storage) fails(load, remove func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onLoad, s.onDelete = load, remove
}

// before runs one of these functions.
func (s *storage) before(which *func() error) error {
	s.mu.Lock()
	f := *which
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f()
}

// fail sets what happens at each change.
func (s *storage) fail(fault func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func newStorage() *storage {
	return &storage{records: map[string]secret.Record{}, index: map[string]secret.Entry{}}
}

func (s *storage) Index(context.Context) ([]secret.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.index)), nil
}

func (s *storage) Load(_ context.Context, name string) (secret.Record, error) {
	if err := s.before(&s.onLoad); err != nil {
		return secret.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	return s.records[name], nil
}

func (s *storage) Store(_ context.Context, e secret.Entry, r secret.Record) error {
	if err := s.before(&s.fault); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[e.Name], s.index[e.Name] = r, e
	return nil
}

func (s *storage) Delete(_ context.Context, name string) error {
	if err := s.before(&s.onDelete); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, name)
	delete(s.index, name)
	return nil
}

func (s *storage) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records[name].Content) > 0
}

// engine is a Set with an authority. It lives in a synctest bubble.
type engine struct {
	*ondemand.Set
	t       *testing.T
	ca      *authority
	other   *catest.CA
	manager *secret.Manager
	config  ondemand.Config
	jump    atomic.Int64
	log     logtest.Log

	mu     sync.Mutex
	events map[secret.EventKind]int
}

func newEngine(t *testing.T, change func(*engine, *ondemand.Config)) *engine {
	t.Helper()
	e := &engine{t: t, events: map[secret.EventKind]int{}}
	e.ca = &authority{CA: catest.NewCA(catest.Options{Now: e.now})}
	e.other = catest.NewCA(catest.Options{Now: e.now})
	var err error
	e.manager, err = secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: e.ca}, {Name: "other", Client: e.other}},
		Secrets:     []secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test", "other"}}},
		Now:         e.now, Log: e.log.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	e.config = ondemand.Config{Manager: e.manager, Rules: []ondemand.Rule{shop()}, Observe: e.observe, Now: e.now, Log: e.log.Logger()}
	if change != nil {
		change(e, &e.config)
	}
	e.start()
	t.Cleanup(func() {
		e.Close()
		e.manager.Close()
		if strings.Contains(e.log.String(), "PRIVATE KEY") {
			t.Error("the log has a key")
		}
	})
	return e
}

// shop is a rule for names below shop.example.org.
func shop() ondemand.Rule {
	return ondemand.Rule{
		Name: "shop", Patterns: patterns("*.shop.example.org"),
		Certificate: secret.Spec{Authorities: []string{"test"}, TTL: ttl},
	}
}

func patterns(all ...string) *names.Patterns {
	p, err := names.New(all...)
	if err != nil {
		panic(err)
	}
	return p
}

func (e *engine) start() {
	e.t.Helper()
	var err error
	if e.Set, err = ondemand.New(e.config); err != nil {
		e.t.Fatal(err)
	}
}

// restart is a new process: nothing outlives but the storage.
func (e *engine) restart() {
	e.t.Helper()
	e.Close()
	e.start()
}

func (e *engine) now() time.Time { return time.Now().Add(time.Duration(e.jump.Load())) }

func (e *engine) observe(event secret.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events[event.Kind]++
}

func (e *engine) count(kind secret.EventKind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.events[kind]
}

// handshake is one subscription.
type handshake struct {
	e       *engine
	name    string
	notices atomic.Int64
	stop    func()
	err     error // of Watch
}

func (e *engine) subscribe(name string) *handshake {
	h := &handshake{e: e, name: name, stop: func() {}}
	stop, err := e.Watch(secret.Caller{}, name, func(got string) {
		if got != name {
			e.t.Errorf("notice of %q, want %q", got, name)
		}
		h.notices.Add(1)
	})
	if h.err = err; err == nil {
		h.stop = stop
	}
	return h
}

// has returns the item, which must be there now.
func (e *engine) has(name string) *secret.Item {
	e.t.Helper()
	synctest.Wait()
	item, err := e.Peek(secret.Caller{}, name)
	if err != nil {
		e.t.Fatalf("%v\n%s", err, e.tail())
	}
	return item
}

// answer returns why there is no item.
func (e *engine) answer(name string, want error) {
	e.t.Helper()
	synctest.Wait()
	if _, err := e.Peek(secret.Caller{}, name); !errors.Is(err, want) {
		e.t.Fatalf("%s: %v, want %v\n%s", name, err, want, e.tail())
	}
}

func (e *engine) tail() string {
	all := e.log.String()
	return all[max(0, len(all)-2000):]
}

// orders fails the test unless the authority was asked so often.
func (e *engine) orders(want int) []ca.SignRequest {
	e.t.Helper()
	synctest.Wait()
	got := e.ca.Requests()
	if len(got) != want {
		e.t.Fatalf("the authority was asked %d times, want %d\n%s", len(got), want, e.tail())
	}
	return got
}

func (e *engine) rule() ondemand.RuleStatus { return e.Status().Rules[0] }

func (e *engine) refused(want map[ondemand.Refusal]uint64) {
	e.t.Helper()
	if got := e.rule().Refused; !maps.Equal(got, want) {
		e.t.Errorf("refused %v, want %v", got, want)
	}
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func bubble(t *testing.T, change func(*engine, *ondemand.Config), test func(*engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newEngine(t, change)) })
}
