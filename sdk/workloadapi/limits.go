package workloadapi

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// What one caller may ask of the JWTSource at the same time, and how many processes of one user are
	// identified at the same time; and how many more of these calls may wait, so that none keeps the
	// others out.
	maxAtOnce = 16
	maxWait   = 1000
	slotWait  = 30 * time.Second
	// workTime is how long the JWTSource may take.
	workTime = time.Minute
)

// callerCalls is one caller's calls of FetchJWTSVID, or one user's that are not identified yet.
type callerCalls struct {
	calls int // in flight and waiting
	slots chan struct{}
}

// attend ends with the work, the caller, the policy or the service, whichever is first. The work goes
// on after the caller: it keeps its place among the caller's calls until the JWTSource has ended it,
// as else a caller that comes and leaves had the authority sign any number of tokens at once.
func (s *Service) attend(
	ctx context.Context, st *stream, before int64, work func(context.Context) (*workloadv1.JWTSVIDResponse, error),
) (*workloadv1.JWTSVIDResponse, error) {
	type reply struct {
		out *workloadv1.JWTSVIDResponse
		err error
	}
	done := make(chan reply, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workTime)
		defer cancel()
		out, err := work(ctx)
		done <- reply{out, err}
	}()
	if err := s.enter(st, before); err != nil {
		return nil, err
	}
	defer s.leave(st)
	select {
	case r := <-done:
		return r.out, r.err
	case err := <-st.ended:
		return nil, err
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// join waits for the caller's turn.
func (s *Service) join(ctx context.Context, caller secret.Caller) (leave func(), err error) {
	c, err := s.callsOf(caller.ID)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
		return func() { <-c.slots; s.quit(caller.ID, c) }, nil
	case <-ctx.Done():
		s.quit(caller.ID, c)
		return nil, status.Errorf(codes.ResourceExhausted, "%d calls of this caller in flight, none ended in time", maxAtOnce)
	}
}

func (s *Service) callsOf(id string) (*callerCalls, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calling[id]
	if c == nil {
		c = &callerCalls{slots: make(chan struct{}, maxAtOnce)}
		s.calling[id] = c
	}
	if c.calls >= maxAtOnce+maxWait {
		return nil, status.Errorf(codes.ResourceExhausted, "%d calls of this caller are waiting", maxWait)
	}
	c.calls++
	return c, nil
}

func (s *Service) quit(id string, c *callerCalls) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.calls--; c.calls == 0 {
		delete(s.calling, id)
	}
}
