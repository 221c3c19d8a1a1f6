package xds

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const thingURL = "type.googleapis.com/test.Thing"

// shelf is a source in memory. Names in known that it has no resource for are
// not ready; names that it does not know are unknown.
type shelf struct {
	mu       sync.Mutex
	known    map[string]*Resource
	watchers map[*shelfWatch]string
	forbid   func(caller, name string) bool
	peeks    int
}

type shelfWatch struct{ notify func(string) }

func newShelf(names ...string) *shelf {
	s := &shelf{known: map[string]*Resource{}, watchers: map[*shelfWatch]string{}, forbid: func(string, string) bool { return false }}
	for _, name := range names {
		s.known[name] = nil
	}
	return s
}

func (s *shelf) Peek(caller, name string) (*Resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peeks++
	r, ok := s.known[name]
	switch {
	case !ok || s.forbid(caller, name):
		return nil, fmt.Errorf("%q: %w", name, ErrUnknown)
	case r == nil:
		return nil, ErrNotReady
	}
	return r, nil
}

func (s *shelf) Watch(_, name string, notify func(string)) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &shelfWatch{notify}
	s.watchers[w] = name
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}, nil
}

// put sets a resource and tells those who watch it.
func (s *shelf) put(r *Resource) {
	if r.Body == nil {
		r.Body = &anypb.Any{TypeUrl: thingURL, Value: []byte(r.Name + "=" + r.Version)}
	}
	s.mu.Lock()
	s.known[r.Name] = r
	s.mu.Unlock()
	s.tell(r.Name)
}

func (s *shelf) set(name, version string) { s.put(&Resource{Name: name, Version: version}) }

func (s *shelf) remove(name string) {
	s.mu.Lock()
	delete(s.known, name)
	s.mu.Unlock()
	s.tell(name)
}

func (s *shelf) tell(name string) {
	s.mu.Lock()
	var notify []func(string)
	for w, watched := range s.watchers {
		if watched == name {
			notify = append(notify, w.notify)
		}
	}
	s.mu.Unlock()
	for _, f := range notify {
		f(name)
	}
}

func (s *shelf) watched() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, name := range s.watchers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// pipe is a stream in memory: what the client sends is buffered, a response is
// handed over when the client takes it.
type pipe struct {
	ctx       context.Context
	cancel    context.CancelFunc
	requests  chan *discovery.DiscoveryRequest
	responses chan *discovery.DiscoveryResponse
	status    chan error
}

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) Recv() (*discovery.DiscoveryRequest, error) {
	select {
	case req, ok := <-p.requests:
		if !ok {
			return nil, io.EOF
		}
		return req, nil
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
}

func (p *pipe) Send(resp *discovery.DiscoveryResponse) error {
	select {
	case p.responses <- resp:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

type callerKey struct{}

// bench is an engine with a source and what it told.
type bench struct {
	t      *testing.T
	engine *Engine[string]
	shelf  *shelf
	mu     sync.Mutex
	events []Event[string]
	logs   strings.Builder
}

// inBubble runs a story in synthetic time with an engine of one type; nothing of
// the engine may be left when it ends.
func inBubble(t *testing.T, story func(t *testing.T, b *bench), names ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config[string]{}, newShelf(names...))
		story(t, b)
		b.engine.Close(nil)
		if left := b.shelf.watched(); len(left) > 0 {
			t.Errorf("watches left after Close: %v", left)
		}
	})
}

func newBench(t *testing.T, cfg Config[string], s *shelf) *bench {
	t.Helper()
	b := &bench{t: t, shelf: s}
	if cfg.Types == nil {
		cfg.Types = []Type[string]{{URL: thingURL, Source: s}}
	}
	if cfg.Admit == nil {
		cfg.Admit = func(ctx context.Context) (string, error) {
			caller, _ := ctx.Value(callerKey{}).(string)
			return caller, nil
		}
	}
	cfg.Observe = b.observe
	cfg.Log = slog.New(slog.NewTextHandler(lockedWriter{b}, nil))
	engine, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.engine = engine
	return b
}

type lockedWriter struct{ b *bench }

func (w lockedWriter) Write(p []byte) (int, error) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	return w.b.logs.Write(p)
}

func (b *bench) observe(e Event[string]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *bench) seen(kind EventKind) (events []Event[string]) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

func (b *bench) logged() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs.String()
}

// dial opens a stream as caller.
func (b *bench) dial(caller string) *client { return b.dialAs(caller, thingURL) }

func (b *bench) dialAs(caller, implied string) *client {
	ctx, cancel := context.WithCancel(context.WithValue(b.t.Context(), callerKey{}, caller))
	p := &pipe{ctx, cancel, make(chan *discovery.DiscoveryRequest, 100), make(chan *discovery.DiscoveryResponse), make(chan error, 1)}
	go func() {
		err := b.engine.Stream(p, implied)
		cancel() // as gRPC does when a handler returns
		p.status <- err
	}()
	return &client{t: b.t, pipe: p}
}

// client speaks the protocol by hand.
type client struct {
	t *testing.T
	*pipe
	last *discovery.DiscoveryResponse
}

func (c *client) send(req *discovery.DiscoveryRequest) {
	c.t.Helper()
	c.requests <- req
	synctest.Wait()
}

// ask sends a request without a nonce.
func (c *client) ask(names ...string) {
	c.t.Helper()
	c.send(&discovery.DiscoveryRequest{ResourceNames: names, Node: &core.Node{Id: "node-1"}})
}

// ack acknowledges the last response and lists names.
func (c *client) ack(names ...string) {
	c.t.Helper()
	c.send(&discovery.DiscoveryRequest{
		ResourceNames: names, VersionInfo: c.last.GetVersionInfo(), ResponseNonce: c.last.GetNonce(), TypeUrl: c.last.GetTypeUrl(),
	})
}

// nack refuses the last response.
func (c *client) nack(reason string, names ...string) {
	c.t.Helper()
	c.send(&discovery.DiscoveryRequest{
		ResourceNames: names, ResponseNonce: c.last.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: reason},
	})
}

// gets demands a response with exactly these resources ("name=version").
func (c *client) gets(want ...string) {
	c.t.Helper()
	synctest.Wait()
	select {
	case c.last = <-c.responses:
	default:
		c.t.Fatalf("no response, want %v", want)
	}
	if got := contents(c.last); !slices.Equal(got, want) {
		c.t.Fatalf("got %v, want %v", got, want)
	}
	synctest.Wait()
}

// silent demands that nothing is sent, now and for a while.
func (c *client) silent() {
	c.t.Helper()
	synctest.Wait()
	select {
	case r := <-c.responses:
		c.t.Fatalf("got %v, want silence", contents(r))
	case <-time.After(time.Minute):
	}
}

func contents(r *discovery.DiscoveryResponse) []string {
	var got []string
	for _, body := range r.GetResources() {
		got = append(got, string(body.GetValue()))
	}
	slices.Sort(got)
	return got
}
