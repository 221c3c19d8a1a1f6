package token_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
)

// sts is an exchanger that a test controls. Each token that it gives is another one.
type sts struct {
	life  time.Duration
	takes time.Duration
	err   error
	calls atomic.Int64
	ended atomic.Int64 // calls whose context ended
}

func (s *sts) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	n := s.calls.Add(1)
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		s.ended.Add(1)
		return ca.ExchangedToken{}, ctx.Err()
	}
	if s.err != nil {
		return ca.ExchangedToken{}, s.err
	}
	out := ca.ExchangedToken{AccessToken: ca.Token(fmt.Sprintf("%s-%d", req.SubjectToken.Reveal(), n))}
	if s.life != 0 {
		out.Expiry = time.Now().Add(s.life)
	}
	return out, nil
}

var asked = ca.TokenRequest{SubjectToken: "me", Audience: "ca", Scopes: []string{"sign"}}

// demand asks for a token and wants that one.
func demand(t *testing.T, c *token.Cache, req ca.TokenRequest, want ca.Token) {
	t.Helper()
	if got, err := c.ExchangeToken(t.Context(), req); got.AccessToken != want || err != nil {
		t.Fatalf("%q, %v; want %q", got.AccessToken.Reveal(), err, want.Reveal())
	}
}

func TestExchangedTokenIsCachedUntilMargin(t *testing.T) {
	for name, c := range map[string]struct{ life, margin, kept time.Duration }{
		"an hour":      {time.Hour, 0, 55 * time.Minute},
		"five minutes": {5 * time.Minute, 0, 4 * time.Minute},
		"own margin":   {time.Hour, 10 * time.Minute, 50 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := token.NewCache(&sts{life: c.life}, token.CacheOptions{Margin: c.margin})
				demand(t, cache, asked, "me-1")
				time.Sleep(c.kept - time.Nanosecond)
				demand(t, cache, asked, "me-1")
				time.Sleep(time.Nanosecond)
				demand(t, cache, asked, "me-2")
			})
		})
	}
}

func TestTokenIsCachedPerRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := token.NewCache(&sts{life: time.Hour}, token.CacheOptions{})
		demand(t, cache, asked, "me-1")
		for i, change := range []func(*ca.TokenRequest){
			func(r *ca.TokenRequest) { r.SubjectToken = "other" },
			func(r *ca.TokenRequest) { r.Audience = "other" },
			func(r *ca.TokenRequest) { r.Scopes = nil },
			func(r *ca.TokenRequest) { r.Scopes = []string{"si", "gn"} },
			func(r *ca.TokenRequest) { r.Resource = "other" },
			func(r *ca.TokenRequest) { r.RequestedType = "other" },
			func(r *ca.TokenRequest) { r.SubjectTokenType = "other" },
			func(r *ca.TokenRequest) { r.Audience, r.Resource = "", "ca" },
		} {
			req := asked
			change(&req)
			demand(t, cache, req, ca.Token(fmt.Sprintf("%s-%d", req.SubjectToken.Reveal(), i+2)))
		}
		demand(t, cache, asked, "me-1")
	})
}

func TestTokenOfUnknownLifetimeIsNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := token.NewCache(&sts{}, token.CacheOptions{})
		demand(t, cache, asked, "me-1")
		demand(t, cache, asked, "me-2")
	})
}

func TestExpiredExchangedTokenIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := token.NewCache(&sts{life: -time.Second}, token.CacheOptions{})
		if _, err := cache.ExchangeToken(t.Context(), asked); !errors.Is(err, ca.ErrInternal) {
			t.Error(err)
		}
	})
}

func TestConcurrentCallersShareOneExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exchanger := &sts{life: time.Hour, takes: time.Second}
		cache := token.NewCache(exchanger, token.CacheOptions{})
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() { demand(t, cache, asked, "me-1") })
		}
		all.Wait()
		if n := exchanger.calls.Load(); n != 1 {
			t.Errorf("%d exchanges", n)
		}
	})
}

func TestCancelledCallerDoesNotEndSharedExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exchanger := &sts{life: time.Hour, takes: time.Second}
		cache := token.NewCache(exchanger, token.CacheOptions{})
		first, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := cache.ExchangeToken(first, asked); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who gave up got %v", err)
			}
		})
		synctest.Wait()
		all.Go(func() { demand(t, cache, asked, "me-1") })
		all.Wait()
	})
}

func TestExchangeEndsWithItsLastCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exchanger := &sts{life: time.Hour, takes: time.Second}
		cache := token.NewCache(exchanger, token.CacheOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := cache.ExchangeToken(ctx, asked); err == nil {
			t.Error("there is an answer before there can be")
		}
		demand(t, cache, asked, "me-2")
		if exchanger.ended.Load() != 1 {
			t.Error("an exchange without waiting callers goes on")
		}
	})
}

func TestFailureIsNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exchanger := &sts{life: time.Hour, err: ca.ErrDenied}
		cache := token.NewCache(exchanger, token.CacheOptions{})
		if _, err := cache.ExchangeToken(t.Context(), asked); !errors.Is(err, ca.ErrDenied) {
			t.Error(err)
		}
		exchanger.err = nil
		demand(t, cache, asked, "me-2")
	})
}

func TestHeldTokenIsUsedToItsEndDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		exchanger := &sts{life: time.Hour}
		cache := token.NewCache(exchanger, token.CacheOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
		demand(t, cache, asked, "me-1")
		exchanger.err = ca.ErrUnavailable
		time.Sleep(time.Hour - time.Second)
		demand(t, cache, asked, "me-1")
		if !strings.Contains(log.String(), "using the cached token") {
			t.Errorf("the log is %s", log.String())
		}
		time.Sleep(time.Second)
		if _, err := cache.ExchangeToken(t.Context(), asked); !errors.Is(err, ca.ErrUnavailable) {
			t.Error(err)
		}
	})
}

// With a held token, an exchange that fails is not repeated for each caller.
func TestFailedRenewalOfHeldTokenPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exchanger := &sts{life: time.Hour}
		cache := token.NewCache(exchanger, token.CacheOptions{Log: slog.New(slog.DiscardHandler)})
		demand(t, cache, asked, "me-1")
		exchanger.err = ca.ErrUnavailable
		time.Sleep(56 * time.Minute)
		for range 100 {
			demand(t, cache, asked, "me-1")
		}
		if n := exchanger.calls.Load(); n != 2 {
			t.Errorf("%d exchanges", n)
		}
		exchanger.err = nil
		time.Sleep(2 * time.Second)
		demand(t, cache, asked, "me-3")
	})
}

// The clock is set back after an exchange: the token's age goes by the monotonic clock then.
func TestClockSetBackKeepsNoTokenLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Duration(0)
		cache := token.NewCache(&sts{life: time.Hour}, token.CacheOptions{Now: func() time.Time { return time.Now().Round(0).Add(-back) }})
		demand(t, cache, asked, "me-1")
		back = 24 * time.Hour
		time.Sleep(56 * time.Minute)
		demand(t, cache, asked, "me-2")
	})
}

func TestDenialEndsHeldToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exchanger := &sts{life: time.Hour}
		cache := token.NewCache(exchanger, token.CacheOptions{})
		demand(t, cache, asked, "me-1")
		time.Sleep(56 * time.Minute)
		for _, err := range []error{ca.ErrDenied, ca.ErrUnavailable} {
			exchanger.err = err
			if _, got := cache.ExchangeToken(t.Context(), asked); !errors.Is(got, err) {
				t.Errorf("%v, want %v", got, err)
			}
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exchanger := &sts{life: time.Hour}
		cache := token.NewCache(exchanger, token.CacheOptions{Most: 2})
		for i, subject := range []ca.Token{"a", "b", "c"} {
			demand(t, cache, ca.TokenRequest{SubjectToken: subject}, ca.Token(fmt.Sprintf("%s-%d", subject.Reveal(), i+1)))
			time.Sleep(time.Second)
		}
		demand(t, cache, ca.TokenRequest{SubjectToken: "c"}, "c-3")
		demand(t, cache, ca.TokenRequest{SubjectToken: "b"}, "b-2")
		demand(t, cache, ca.TokenRequest{SubjectToken: "a"}, "a-4") // it was to end first
	})
}

func TestChainedExchangesForgetRejectedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, outer := &sts{life: time.Hour}, &sts{life: time.Hour}
		source := token.Exchanged{
			Source: token.Ordered{Sources: []token.Source{token.Exchanged{
				Source: token.Static{Value: "me"}, Cache: token.NewCache(inner, token.CacheOptions{}),
			}}},
			Cache: token.NewCache(outer, token.CacheOptions{}),
		}
		has := func(want ca.Token) {
			t.Helper()
			if got, err := source.Token(t.Context()); got.Token != want || got.Expiry.IsZero() || err != nil {
				t.Fatalf("%q, %v; want %q", got.Token.Reveal(), err, want.Reveal())
			}
		}
		has("me-1-1")
		source.Rejected("another")
		has("me-1-1")
		source.Rejected("me-1-1")
		has("me-2-2")
	})
}

func TestNothingIsExchangedWithoutToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exchanger := &sts{err: ca.Errorf(ca.Denied, "no")}
		cache := token.NewCache(exchanger, token.CacheOptions{})
		missing := token.Exchanged{Source: token.File{Path: "/none"}, Cache: cache}
		if _, err := missing.Token(t.Context()); !errors.Is(err, ca.ErrUnavailable) {
			t.Error(err)
		}
		needless := token.Exchanged{Source: token.File{Path: "/none", Optional: true}, Cache: cache}
		if got, err := needless.Token(t.Context()); got.Token != "" || err != nil || exchanger.calls.Load() != 0 {
			t.Errorf("%v, %v", got, err)
		}
		refused := token.Exchanged{Source: token.Static{Value: "me"}, Cache: cache}
		if _, err := refused.Token(t.Context()); !errors.Is(err, ca.ErrDenied) || !strings.Contains(err.Error(), "exchange the token") {
			t.Error(err)
		}
	})
}
