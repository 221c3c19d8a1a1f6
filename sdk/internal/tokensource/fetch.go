package tokensource

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/trace"
)

const (
	// patience is how long a caller waits for the successor of a token that still works.
	patience = time.Second
	// A token with less left is not given out.
	leastLeft = 5 * time.Second
	maxHeld   = 4096 // tokens
)

// holding is the last token of an order, or the reason why it is missing.
type holding struct {
	reply   Reply
	signer  jose.JSONWebKey // which has signed it
	asked   time.Time
	renew   time.Time
	refusal outage // of this order alone
}

// fresh reports whether there is no reason to replace a token that works. Once the clock was set back
// behind the request, it may be in the future for those who verify it.
func (h *holding) fresh(now time.Time) bool {
	return now.Before(h.renew) && !now.Before(h.asked.Add(-Leeway))
}

// Fetch returns a token that works. Of several callers for the same order, one call goes to the
// authority; while that is away, a token is given out until it ends. One holder has four a second
// signed, beside 200 at once. Errors are a [*ca.Error].
func (s *Source) Fetch(ctx context.Context, o Order) (Reply, error) {
	held, due, err := s.look(o, s.now())
	if !due {
		return held, err
	}
	if err := s.admit(ctx, o); err != nil && held.Token != "" {
		return held, nil
	} else if err != nil {
		return Reply{}, err
	}
	var enough <-chan time.Time
	if held.Token != "" {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		enough = timer.C
	}
	got, err := s.join(ctx, o, enough)
	if err != nil && held.Token != "" {
		return held, nil
	}
	return got, err
}

func (s *Source) unable() error {
	return ca.Errorf(ca.Unimplemented, "the authority signs no %ss", s.cfg.Kind.Name)
}

var errPatience = errors.New("the authority has not answered yet")

// join joins the call for an order, until ctx ends or enough is ready.
func (s *Source) join(ctx context.Context, o Order, enough <-chan time.Time) (Reply, error) {
	flight := s.flights.DoChan(o.key(), func() (any, error) { return s.renew(o) })
	select {
	case reply := <-flight:
		got, _ := reply.Val.(Reply)
		return got, reply.Err
	case <-enough:
		return Reply{}, errPatience
	case <-ctx.Done():
		return Reply{}, ca.Errorf(ca.ReasonFor(ctx.Err()), "no %s in time: %w", s.cfg.Kind.Name, context.Cause(ctx))
	}
}

func (s *Source) now() rotation.Time { return rotation.Now(s.cfg.Now()) }

// look returns the token that is held, if it works, and whether the authority is to be asked.
func (s *Source) look(o Order, now rotation.Time) (held Reply, due bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[o.key()]
	switch {
	case h == nil:
		h = &holding{}
	case s.works(h, now):
		held = h.reply
	}
	switch missing := s.missing.Load(); {
	case held.Token != "" && (missing || h.fresh(now.Wall)):
		return held, false, nil
	case missing:
		return held, false, s.unable()
	}
	if _, err = s.outagesOf(o.ID, now); !h.refusal.pause.Over(now) {
		err = h.refusal.err
	}
	if err == nil {
		return held, true, nil
	}
	if held.Token != "" {
		err = nil
	}
	return held, false, err
}

// works reports whether a token can be given out.
func (s *Source) works(h *holding, now rotation.Time) bool {
	return h.reply.Token != "" && now.Wall.Before(h.reply.Ends.Add(-leastLeft)) && s.publishes(h.signer)
}

// publishes reports whether the authority still publishes a key: a token signed with another key
// cannot be verified.
func (s *Source) publishes(key jose.JSONWebKey) bool {
	p := s.published.Load()
	return p != nil && slices.ContainsFunc(p.Keys, func(k jose.JSONWebKey) bool {
		public, ok := k.Key.(interface{ Equal(crypto.PublicKey) bool })
		return k.KeyID == key.KeyID && ok && public.Equal(key.Key)
	})
}

// renew gets a token and holds it. It runs once for an order at a time, and does not end with
// the caller that began it.
func (s *Source) renew(o Order) (Reply, error) {
	s.mu.Lock()
	closed := s.ctx.Err() != nil
	if !closed {
		s.wg.Add(1) // never after Close has begun to wait
	}
	s.mu.Unlock()
	if closed {
		return Reply{}, s.closed()
	}
	defer s.wg.Done()
	defer s.signs(o)()
	ctx, cancel := context.WithTimeoutCause(s.ctx, callTimeout, ca.Errorf(ca.Deadline, "the authority did not answer within %s", callTimeout))
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		err := ca.Errorf(ca.Unavailable, "%d calls of the authority in flight, none ended in time", maxCalls)
		s.noteFailure(err)
		return Reply{}, err
	}
	asked := s.now()
	s.mu.Lock()
	before, err := s.outagesOf(o.ID, asked)
	s.mu.Unlock()
	if err != nil { // it began while this call waited for its slot
		return Reply{}, err
	}
	got, err := s.traced(ctx, o)
	if s.ctx.Err() != nil {
		return Reply{}, s.closed()
	}
	got.asked, got.renew = asked.Wall, s.cfg.Kind.renewal(asked.Wall, got.reply.Ends)
	s.settle(o, got, err, before)
	return got.reply, err
}

func (s *Source) closed() error {
	return ca.Errorf(ca.Unavailable, "the source of %ss is closed", s.cfg.Kind.Name)
}

// traced is sign in a trace of its own: callers share its result, and may be gone before it ends.
func (s *Source) traced(ctx context.Context, o Order) (got holding, err error) {
	ctx, span := trace.Begin(ctx, s.cfg.Tracer, s.cfg.Kind.Span)
	defer func() { span.End(err) }()
	if span != nil { // without a tracer, texts cost nothing
		span.Set("identity", o.ID)
		if len(o.Audiences) > 0 {
			span.Set("audiences", strings.Join(o.Audiences, " "))
		}
	}
	return s.sign(ctx, o)
}

// sign asks the authority, a second time with a new credential if the first was rejected, and
// verifies the reply.
func (s *Source) sign(ctx context.Context, o Order) (holding, error) {
	bearer, err := s.bearer(ctx)
	if err != nil {
		return holding{}, err
	}
	reply, err := s.ask(ctx, o, bearer.Token)
	if err != nil && ca.ActionFor(err) == ca.RefreshToken && bearer.Token != "" {
		s.cfg.TokenRejected(bearer.Token)
		next, failed := s.bearer(ctx)
		if failed != nil {
			return holding{}, redact.Error(failed, bearer.Token)
		}
		if next.Token != bearer.Token {
			reply, err = s.ask(ctx, o, next.Token)
		}
	}
	if err != nil {
		return holding{}, err
	}
	got, err := s.checkReply(ctx, o, reply)
	if errors.Is(err, errReply) {
		if suppressed, ok := s.repeats.Allow(o.ID, time.Now()); ok {
			s.cfg.Log.Error(fmt.Sprintf("the authority's %s is refused", s.cfg.Kind.Name), "spiffe_id", o.ID, "error", err, "suppressed", suppressed)
		}
	}
	return got, err
}

func (s *Source) bearer(ctx context.Context) (b ca.Bearer, err error) {
	ctx, span := trace.Start(ctx, "token", trace.Internal)
	defer func() { span.End(err) }()
	return s.cfg.Token(ctx)
}

func (s *Source) ask(ctx context.Context, o Order, credential ca.Token) (got Reply, err error) {
	ctx, span := trace.Start(ctx, "sign", trace.Internal)
	defer func() { span.End(err) }()
	got, err = s.cfg.Sign(ctx, o, credential)
	if _, ok := errors.AsType[*ca.Error](err); err != nil && !ok {
		err = ca.Errorf(ca.ReasonFor(err), "sign a %s: %w", s.cfg.Kind.Name, err)
	}
	return got, redact.Error(err, credential)
}

// settle remembers how a call ended that began after these outages.
func (s *Source) settle(o Order, got holding, err error, before outages) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.record.failed(err, now.Wall, s.fail(o, err, now, before))
		return
	}
	s.succeed(o)
	s.record.succeeded()
	s.keep(o.key(), &got, now)
}

// refuse remembers why an order has no new token, and returns when it is next asked for.
func (s *Source) refuse(o Order, err error, now rotation.Time) time.Time {
	h := &holding{}
	if was := s.held[o.key()]; was != nil {
		*h = *was
	}
	next := h.refusal.extend(err, now, h.reply.Ends.Sub(now.Wall), 0, h.refusal.count)
	s.keep(o.key(), h, now)
	return next
}

// keep stores what is held of an order. When there is too much, another order goes.
func (s *Source) keep(key string, h *holding, now rotation.Time) {
	if len(s.held) >= maxHeld && s.held[key] == nil {
		delete(s.held, s.victim(now))
	}
	s.held[key] = h
}

// victim returns one that is over, of a few at random, or else the last of these. What is maintained
// stays.
func (s *Source) victim(now rotation.Time) (key string) {
	looked := 0
	for other, h := range s.held {
		if s.maintained[other] > 0 {
			continue
		}
		key = other
		if looked++; looked == 16 || !now.Wall.Before(h.reply.Ends) && h.refusal.pause.Over(now) {
			break
		}
	}
	return key
}
