package secret_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var agent secret.Caller

// signOnly hides what a client can do beside signing.
type signOnly struct{ ca.Client }

// polled is an authority whose roots are asked for, not watched.
type polled struct {
	ca.Client
	ca.RootSource
}

// engine is a Manager with "default" and "ROOTCA" of one authority, and all that a
// test wants to see of it. It lives in a synctest bubble.
type engine struct {
	*secret.Manager
	t    *testing.T
	ca   *catest.CA
	jump atomic.Int64 // how far the wall clock is off

	mu     sync.Mutex
	events []secret.Event
	log    logtest.Log
}

const ttl = time.Hour

// newEngine starts an engine; change may change its settings.
func newEngine(t *testing.T, change func(*secret.Config)) *engine {
	t.Helper()
	e := &engine{t: t}
	e.ca = catest.NewCA(catest.Options{Now: e.now})
	config := secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: e.ca}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Authorities: []string{"test"}, Identity: identity(t, "spiffe://example.org/web"), TTL: ttl, RenewJitter: 0.01},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
		},
		Observe: e.observe, Now: e.now, Log: e.log.Logger(),
	}
	if change != nil {
		change(&config)
	}
	m, err := secret.New(config)
	if err != nil {
		t.Fatal(err)
	}
	e.Manager = m
	t.Cleanup(func() { m.Close() })
	return e
}

func identity(t *testing.T, spiffeID string) pki.Identity {
	t.Helper()
	id, err := pki.NewIdentity(spiffeID, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (e *engine) now() time.Time { return time.Now().Add(time.Duration(e.jump.Load())) }

// client makes the config use another client for the same CA.
func client(wrap func(*catest.CA) ca.Client) func(*secret.Config) {
	return func(c *secret.Config) { c.Authorities[0].Client = wrap(c.Authorities[0].Client.(*catest.CA)) }
}

func (e *engine) observe(event secret.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event)
}

func (e *engine) logged() string { return e.log.String() }

// count returns the number of events of that type and reason.
func (e *engine) count(kind secret.EventKind, reason string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events {
		if event.Kind == kind && event.Reason == reason {
			n++
		}
	}
	return n
}

// after lets time go by and everything settle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// held returns the item for name, which must be there now.
func (e *engine) held(name string) *secret.Item {
	e.t.Helper()
	synctest.Wait()
	item, err := e.Peek(agent, name)
	if err != nil {
		e.t.Fatal(err)
	}
	return item
}

func (e *engine) notReady(name string) {
	e.t.Helper()
	synctest.Wait()
	if item, err := e.Peek(agent, name); !errors.Is(err, secret.ErrNotReady) {
		e.t.Fatalf("got %v, %v; want ErrNotReady", item, err)
	}
}

func (e *engine) requests(want int) []ca.SignRequest {
	e.t.Helper()
	synctest.Wait()
	got := e.ca.Requests()
	if len(got) != want {
		e.t.Fatalf("the authority was asked %d times, want %d\n%s", len(got), want, e.logged())
	}
	return got
}

func (e *engine) status(name string) secret.Status {
	e.t.Helper()
	synctest.Wait()
	for _, s := range e.Status() {
		if s.Name == name {
			return s
		}
	}
	e.t.Fatalf("there is no status of %q", name)
	return secret.Status{}
}

// untilRenewal lets time go by until a second before, or after, the rotation.
func (e *engine) untilRenewal(offset time.Duration) {
	e.t.Helper()
	after(e.held("default").RenewAt.Sub(e.now()) + offset)
}

// stubborn is a client that does not look at its context.
type stubborn struct {
	ca.Client
	stuck   atomic.Bool
	free    chan struct{}
	waiting atomic.Int64
}

func (s *stubborn) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if s.stuck.Load() {
		s.waiting.Add(1)
		<-s.free
		s.waiting.Add(-1)
	}
	return s.Client.CSRSign(context.WithoutCancel(ctx), req)
}
