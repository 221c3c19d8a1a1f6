package xds

import (
	"context"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// pipe is a stream in memory: what the client sends is buffered, a response is
// handed over when the client takes it.
type pipe[Q, R any] struct {
	ctx       context.Context
	cancel    context.CancelFunc
	requests  chan Q
	responses chan R
	status    chan error
}

func (p *pipe[Q, R]) Context() context.Context { return p.ctx }

func (p *pipe[Q, R]) Recv() (req Q, err error) {
	select {
	case req, ok := <-p.requests:
		if !ok {
			return req, io.EOF
		}
		return req, nil
	case <-p.ctx.Done():
		return req, p.ctx.Err()
	}
}

func (p *pipe[Q, R]) Send(resp R) error {
	select {
	case p.responses <- resp:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// peer is the client's end of a stream.
type peer[Q, R any] struct {
	*pipe[Q, R]
	t        *testing.T
	contents func(R) []string
	last     R
}

// dialPeer opens a stream of caller, which serve serves.
func dialPeer[Q, R any](t *testing.T, caller string, serve func(Stream[Q, R]) error, contents func(R) []string) *peer[Q, R] {
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), callerKey{}, caller))
	p := &pipe[Q, R]{ctx, cancel, make(chan Q, 100), make(chan R), make(chan error, 1)}
	go func() {
		err := serve(p)
		cancel() // as gRPC does when a handler returns
		p.status <- err
	}()
	return &peer[Q, R]{pipe: p, t: t, contents: contents}
}

func (p *peer[Q, R]) send(req Q) {
	p.t.Helper()
	p.requests <- req
	synctest.Wait()
}

// takes returns the contents of the next response, or false if there is none.
func (p *peer[Q, R]) takes() (contents []string, ok bool) {
	synctest.Wait()
	select {
	case p.last = <-p.responses:
		synctest.Wait()
		return p.contents(p.last), true
	default:
		return nil, false
	}
}

// gets demands a response with exactly these contents.
func (p *peer[Q, R]) gets(want ...string) {
	p.t.Helper()
	synctest.Wait()
	select {
	case p.last = <-p.responses:
	default:
		p.t.Fatalf("no response, want %v", want)
	}
	if got := p.contents(p.last); !slices.Equal(got, want) {
		p.t.Fatalf("got %v, want %v", got, want)
	}
	synctest.Wait()
}

// silent demands that nothing is sent, now and for a while.
func (p *peer[Q, R]) silent() {
	p.t.Helper()
	p.silentFor(time.Minute)
}

func (p *peer[Q, R]) silentFor(a time.Duration) {
	p.t.Helper()
	synctest.Wait()
	select {
	case r := <-p.responses:
		p.t.Fatalf("got %v, want silence", p.contents(r))
	case <-time.After(a):
	}
	synctest.Wait()
}

// ends demands that the stream has ended with a status.
func (p *peer[Q, R]) ends(want codes.Code) {
	p.t.Helper()
	synctest.Wait()
	select {
	case err := <-p.status:
		if status.Code(err) != want {
			p.t.Fatalf("the stream ended with %v, want %v", err, want)
		}
	default:
		p.t.Fatalf("the stream goes on, want %v", want)
	}
}
