package identities_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl    = time.Hour
	domain = "spiffe://example.org/"
)

// authority looks at tokens, as istiod does: one is good where it reads "good:<name>"
// with anything after a further colon. It signs for no other caller, whatever is asked.
type authority struct {
	*catest.CA
	t        *testing.T
	inFlight atomic.Int64
	most     atomic.Int64
	denied   ca.Token // a good one that it denies; set it before it is asked
}

func (a *authority) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	now := a.inFlight.Add(1)
	defer a.inFlight.Add(-1)
	a.most.Store(max(a.most.Load(), now))
	if owner := ownerOf(req.Token); owner == "" || req.SubjectID != domain+owner {
		_, _ = a.CA.CSRSign(ctx, req) // counted
		return ca.Certificate{}, ca.Errorf(ca.Unauthenticated, "token %s is not %s's", req.Token.Reveal(), req.SubjectID)
	}
	if a.denied != "" && req.Token == a.denied {
		_, _ = a.CA.CSRSign(ctx, req) // counted
		return ca.Certificate{}, ca.Errorf(ca.Denied, "not you")
	}
	return a.CA.CSRSign(ctx, req)
}

// ownerOf returns whose a good token is.
func ownerOf(token ca.Token) string {
	rest, good := strings.CutPrefix(token.Reveal(), "good:")
	owner, _, _ := strings.Cut(rest, ":")
	if !good {
		return ""
	}
	return owner
}

// claimed trusts a token: "good:web" and "forged:web" claim to be web's. One that has
// ":until=<seconds>" ends then, counted from the beginning of the bubble.
func (e *engine) claimed(token ca.Token) (identities.Claim, error) {
	_, rest, ok := strings.Cut(token.Reveal(), ":")
	if !ok {
		return identities.Claim{}, errors.New("it claims nothing")
	}
	owner, _, _ := strings.Cut(rest, ":")
	claim := identities.Claim{SPIFFEID: domain + owner}
	if _, end, ok := strings.Cut(rest, ":until="); ok {
		d, err := time.ParseDuration(end)
		if err != nil {
			e.t.Fatal(err)
		}
		claim.Expiry = e.began.Add(d)
	}
	return claim, nil
}

// verifier recognizes good tokens by itself.
type verifier struct {
	e     *engine
	asked atomic.Int64
	hang  atomic.Bool
	delay atomic.Int64 // a time.Duration
}

func (v *verifier) Verify(ctx context.Context, token ca.Token) (identities.Claim, error) {
	v.asked.Add(1)
	if v.hang.Load() {
		<-ctx.Done()
		return identities.Claim{}, ca.Errorf(ca.Unavailable, "the token could not be looked at")
	}
	time.Sleep(time.Duration(v.delay.Load()))
	if ownerOf(token) == "" {
		return identities.Claim{}, ca.Errorf(ca.Unauthenticated, "the token is not good")
	}
	return v.e.claimed(token)
}

// engine is a Set with an authority. It lives in a synctest bubble.
type engine struct {
	*identities.Set
	t        *testing.T
	ca       *authority
	manager  *secret.Manager
	verifier *verifier
	began    time.Time
	jump     atomic.Int64

	mu     sync.Mutex
	events []secret.Event
	log    logtest.Log
}

func newEngine(t *testing.T, change func(*engine, *identities.Config)) *engine {
	t.Helper()
	e := &engine{t: t, began: time.Now()}
	e.verifier = &verifier{e: e}
	e.ca = &authority{CA: catest.NewCA(catest.Options{Now: e.now}), t: t}
	var err error
	e.manager, err = secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: e.ca}},
		Secrets:     []secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}}},
		Now:         e.now,
	})
	if err != nil {
		t.Fatal(err)
	}
	config := identities.Config{
		Manager:     e.manager,
		Certificate: secret.Spec{Authorities: []string{"test"}, TTL: ttl},
		Identify:    identities.Identify{Claimed: e.claimed},
		Observe:     e.observe, Now: e.now, Log: e.log.Logger(),
	}
	if change != nil {
		change(e, &config)
	}
	if e.Set, err = identities.New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		e.manager.Close()
		for _, line := range []string{"good:", "forged:", "PRIVATE KEY"} {
			if strings.Contains(e.logged(), line) {
				t.Errorf("the log has %q:\n%s", line, e.tail())
			}
		}
	})
	return e
}

// verified has tokens verified before a stream joins.
func verified(e *engine, c *identities.Config) {
	c.Identify = identities.Identify{Verifier: e.verifier}
}

func (e *engine) now() time.Time { return time.Now().Add(time.Duration(e.jump.Load())) }

func (e *engine) observe(event secret.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event)
}

func (e *engine) logged() string { return e.log.String() }

// tail is the end of the log.
func (e *engine) tail() string {
	all := e.logged()
	return all[max(0, len(all)-2000):]
}

// count returns the number of events of a type.
func (e *engine) count(kind secret.EventKind) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events {
		if event.Kind == kind {
			n++
		}
	}
	return n
}

var proxy = secret.Caller{ID: "uid:1000", UID: 1000, GID: 1000, PID: 7}

// stream is one that joined and watches "default".
type stream struct {
	e       *engine
	caller  secret.Caller
	notices atomic.Int64
	stop    func()
}

// join takes in a stream that must be taken in.
func (e *engine) join(token ca.Token) *stream {
	e.t.Helper()
	s, err := e.tryJoin(token)
	if err != nil {
		e.t.Fatal(err)
	}
	return s
}

func (e *engine) tryJoin(token ca.Token) (*stream, error) {
	return e.joinAs(proxy, token)
}

func (e *engine) joinAs(peer secret.Caller, token ca.Token) (*stream, error) {
	caller, err := e.Join(context.Background(), peer, token)
	if err != nil {
		return nil, err
	}
	s := &stream{e: e, caller: caller}
	if s.stop, err = e.Watch(caller, "default", func(string) { s.notices.Add(1) }); err != nil {
		e.t.Fatal(err)
	}
	return s, nil
}

func (s *stream) leave() {
	s.stop()
	s.e.Leave(s.caller)
}

// held returns what the stream has, which must be there now.
func (s *stream) held() *secret.Item {
	s.e.t.Helper()
	synctest.Wait()
	item, err := s.e.Peek(s.caller, "default")
	if err != nil {
		s.e.t.Fatalf("%v\n%s", err, s.e.tail())
	}
	return item
}

// nothing returns why the stream has none.
func (s *stream) nothing() error {
	s.e.t.Helper()
	synctest.Wait()
	item, err := s.e.Peek(s.caller, "default")
	if err == nil {
		s.e.t.Fatalf("the stream has %v", item)
	}
	return err
}

// is fails the test where an error is not what it should be.
func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// requests returns what the authority was asked, which must be that often.
func (e *engine) requests(want int) []ca.SignRequest {
	e.t.Helper()
	synctest.Wait()
	got := e.ca.Requests()
	if len(got) != want {
		e.t.Fatalf("the authority was asked %d times, want %d\n%s", len(got), want, e.tail())
	}
	return got
}

// after lets time go by and everything settle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func token(owner string, rest ...any) ca.Token {
	return ca.Token("good:" + owner + ":" + fmt.Sprint(rest...))
}

// bubble runs a test on a clock of its own.
func bubble(t *testing.T, change func(*engine, *identities.Config), test func(*engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newEngine(t, change)) })
}
