package jwtsvid_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/holder"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
)

func TestTokenIsKeptUntilHalfOfItsLife(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		first := fetch(t, s, database, "https://b")
		if req := a.last.Load(); req.SubjectID != web || req.TTL != 5*time.Minute || !slices.Equal(sorted(req.Audiences), []string{database, "https://b"}) {
			t.Errorf("asked for %+v", req)
		}
		time.Sleep(2 * time.Minute)
		if fetch(t, s, "https://b", database, database) != first {
			t.Error("the order of the audiences matters")
		}
		a.asked(1)
		time.Sleep(31 * time.Second)
		if fetch(t, s, database, "https://b") == first {
			t.Error("after half of its life it is the same")
		}
		a.asked(2)
		fetch(t, s, database)
		a.asked(3)
	})
}

// A key that the authority publishes no more may be one that it lost.
func TestTokenOfAWithdrawnKeyIsNotGivenOut(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		first := fetch(t, s, database)
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			return token(t, "b", "b", claimsOf(req, nil), nil), nil
		})
		a.publish(jwks("b", "a"))
		if fetch(t, s, database) != first {
			t.Error("while its key is published, it is another")
		}
		a.publish(jwks("b"))
		if fetch(t, s, database) == first {
			t.Error("its key is withdrawn, and it is given out")
		}
		a.asked(2)
	})
}

func TestManyCallersCostOneCall(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			time.Sleep(10 * time.Second)
			return token(t, "a", "a", claimsOf(req, nil), nil), nil
		})
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() { _, _ = s.Fetch(t.Context(), web, []string{database}) })
		}
		all.Wait()
		a.asked(1)
	})
}

func TestOutageIsBridgedByWhatIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		first := fetch(t, s, database)
		a.fail(ca.Errorf(ca.Unavailable, "away"))
		time.Sleep(4 * time.Minute)
		for range 100 {
			if fetch(t, s, database) != first {
				t.Fatal("another token")
			}
		}
		a.asked(2)
		time.Sleep(time.Minute)
		for range 100 {
			if _, err := s.Fetch(t.Context(), web, []string{database}); !errors.Is(err, ca.ErrUnavailable) {
				t.Fatalf("after its end: %v", err)
			}
		}
		a.asked(3)
		a.answer(nil)
		time.Sleep(2 * time.Minute)
		fetch(t, s, database)
	})
}

func TestOutageCostsFewCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.fail(ca.Errorf(ca.Unavailable, "away"))
		for i := range 600 {
			if _, err := s.Fetch(t.Context(), web, []string{fmt.Sprintf("https://%d", i)}); !errors.Is(err, ca.ErrUnavailable) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := a.calls.Load(); n > 80 { // the table's longest wait is 10 s
			t.Errorf("%d calls in ten minutes", n)
		}
	})
}

// A restart of the provider fails all calls in flight at once.
func TestCallsThatFailTogetherPauseOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.answer(func(context.Context, ca.JWTRequest) (ca.Token, error) {
			time.Sleep(100 * time.Millisecond)
			return "", ca.Errorf(ca.Unavailable, "restarting")
		})
		var all sync.WaitGroup
		for i := range 200 { // more than may be in flight
			all.Go(func() {
				if _, err := s.Fetch(t.Context(), web, []string{fmt.Sprintf("https://%d", i)}); !errors.Is(err, ca.ErrUnavailable) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		// The first failure pauses its own order alone, so that one more may take its slot.
		if n := a.calls.Load(); n < 64 || n > 65 {
			t.Errorf("the authority was asked %d times, want the 64 in flight, and one more at most", n)
		}
		a.answer(nil)
		time.Sleep(1300 * time.Millisecond)
		fetch(t, s, database)
	})
}

// A caller that asks without end delays no other, and held tokens cost nothing.
func TestSignaturesAreBoundedForEachCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		greedy, modest := holder.With(t.Context(), "uid:1"), holder.With(t.Context(), "uid:2")
		for i := range 1000 {
			_, err := s.Fetch(greedy, web, []string{fmt.Sprintf("https://%d", i)})
			if i >= 200 && !errors.Is(err, ca.ErrRateLimited) || i < 200 && err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
		}
		a.asked(200)
		for range 1000 {
			if _, err := s.Fetch(greedy, web, []string{"https://7"}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Fetch(modest, web, []string{database}); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		for i := range 40 {
			if _, err := s.Fetch(greedy, web, []string{fmt.Sprintf("https://later/%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

const other = "spiffe://example.org/other"

// What one caller asks for may fail for a reason of its own.
func TestFailingOrderPausesNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			if req.Audiences[0] == database {
				return "", ca.Errorf(ca.Unavailable, "for this audience")
			}
			return token(t, "a", "a", claimsOf(req, nil), nil), nil
		})
		for i := range 100 {
			if _, err := s.Fetch(t.Context(), web, []string{database}); !errors.Is(err, ca.ErrUnavailable) {
				t.Fatal(err)
			}
			fetch(t, s, fmt.Sprintf("https://%d", i))
			time.Sleep(100 * time.Millisecond)
		}
		if failed := a.calls.Load() - 100; failed > 12 {
			t.Errorf("%d calls for it in 10 s", failed)
		}
	})
}

// One caller may also make many orders that fail.
func TestFailingOrdersOfOneIdentityPauseNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			if req.SubjectID == other {
				return "", ca.Errorf(ca.Unavailable, "for this identity")
			}
			return token(t, "a", "a", claimsOf(req, nil), nil), nil
		})
		for i := range 100 {
			if _, err := s.Fetch(t.Context(), other, []string{fmt.Sprintf("https://%d", i)}); !errors.Is(err, ca.ErrUnavailable) {
				t.Fatal(err)
			}
			if i%10 == 0 {
				fetch(t, s, fmt.Sprintf("https://%d", i))
			}
			time.Sleep(100 * time.Millisecond)
		}
		if failed := a.calls.Load() - 10; failed > 12 {
			t.Errorf("%d calls for it in 10 s", failed)
		}
	})
}

func TestFailuresOfDifferentIdentitiesPauseAll(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.fail(ca.Errorf(ca.Unavailable, "away"))
		for i := range 100 {
			if _, err := s.Fetch(t.Context(), fmt.Sprint(other, i), []string{database}); !errors.Is(err, ca.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		a.asked(2)
	})
}

// An outage that is over leaves the pause of a later failure to its order.
func TestFailingOrderAfterOutagePausesNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.fail(ca.Errorf(ca.Unavailable, "away"))
		for i := range 2 {
			if _, err := s.Fetch(t.Context(), fmt.Sprint(other, i), []string{database}); !errors.Is(err, ca.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			if req.SubjectID == other {
				return "", ca.Errorf(ca.Unavailable, "for this identity")
			}
			return token(t, "a", "a", claimsOf(req, nil), nil), nil
		})
		fetch(t, s, "https://first")
		if _, err := s.Fetch(t.Context(), other, []string{database}); !errors.Is(err, ca.ErrUnavailable) {
			t.Fatal(err)
		}
		fetch(t, s, "https://second")
	})
}

func TestLongestRetryAfterOfCallsTogetherCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			if time.Sleep(time.Second); req.Audiences[0] == database {
				return "", ca.Errorf(ca.Unavailable, "away")
			}
			time.Sleep(100 * time.Millisecond)
			return "", &ca.Error{Reason: ca.RateLimited, RetryAfter: 30 * time.Second}
		})
		var all sync.WaitGroup
		for _, audience := range []string{database, "https://x"} {
			all.Go(func() { _, _ = s.Fetch(t.Context(), web, []string{audience}) })
		}
		all.Wait()
		a.answer(nil)
		time.Sleep(29 * time.Second)
		if _, err := s.Fetch(t.Context(), web, []string{database}); !errors.Is(err, ca.ErrRateLimited) {
			t.Error(err)
		}
		time.Sleep(35 * time.Second) // it is spread by its own length
		fetch(t, s, database)
	})
}

func TestRefusalIsRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.fail(ca.Errorf(ca.Denied, "not you"))
		for range 10 {
			if _, err := s.Fetch(t.Context(), web, []string{database}); !errors.Is(err, ca.ErrDenied) {
				t.Fatal(err)
			}
		}
		a.asked(1)
		a.answer(nil)
		fetch(t, s, "https://other") // is not refused
		time.Sleep(time.Minute)
		fetch(t, s, database)
	})
}

// The clock is ahead for a moment, as before the first answer of an NTP server, and a call fails then.
func TestFailureWhileClockIsAheadDoesNotLast(t *testing.T) {
	for _, err := range []error{ca.ErrUnavailable, ca.ErrDenied, ca.ErrUnauthenticated} {
		var ahead time.Duration
		inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
			a.fail(err)
			ahead = 365 * 24 * time.Hour
			if _, got := s.Fetch(t.Context(), web, []string{database}); !errors.Is(got, err) {
				t.Fatal(got)
			}
			ahead = 0
			a.answer(nil)
			time.Sleep(2 * time.Second)
			fetch(t, s, database)
		}, func(c *jwtsvid.Config) { c.Now = func() time.Time { return time.Now().Round(0).Add(ahead) } })
	}
}

// A suspend ends a pause: the monotonic clock stands still meanwhile.
func TestSuspendEndsPause(t *testing.T) {
	var suspended time.Duration
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.fail(&ca.Error{Reason: ca.RateLimited, RetryAfter: 5 * time.Minute})
		if _, err := s.Fetch(t.Context(), web, []string{database}); !errors.Is(err, ca.ErrRateLimited) {
			t.Fatal(err)
		}
		suspended = time.Hour
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			return token(t, "a", "a", claimsOf(req, claimSet{"exp": time.Now().Add(suspended + req.TTL).Unix()}), nil), nil
		})
		fetch(t, s, database)
	}, func(c *jwtsvid.Config) { c.Now = func() time.Time { return time.Now().Round(0).Add(suspended) } })
}

// A proxy in front of an authority that starts may say that it lacks the method.
func TestMissingMethodIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.fail(ca.ErrUnimplemented)
		for range 10 {
			if _, err := s.Fetch(t.Context(), web, []string{database}); !errors.Is(err, ca.ErrUnimplemented) {
				t.Fatal(err)
			}
		}
		a.asked(1)
		a.answer(nil)
		time.Sleep(10 * time.Minute)
		fetch(t, s, database)
	})
}

// losesKeys ends the watch of the keys; the next ones end with err.
func (a *authority) losesKeys(err error) {
	a.mu.Lock()
	a.watch = func(context.Context, func([]byte) error) error { return err }
	a.mu.Unlock()
	a.publish([]byte("no keys"))
}

func TestAbilityThatIsLostForAWhileEndsNoToken(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		first := fetch(t, s, database)
		a.losesKeys(ca.ErrUnimplemented)
		time.Sleep(4 * time.Minute)
		if fetch(t, s, database) != first {
			t.Error("another token")
		}
		if _, err := s.Fetch(t.Context(), web, []string{"https://other"}); !errors.Is(err, ca.ErrUnimplemented) {
			t.Errorf("what is not held: %v", err)
		}
	})
}

func TestTokenThatCannotBeVerifiedIsNotRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.losesKeys(ca.ErrUnavailable)
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			return token(t, "b", "b", claimsOf(req, nil), nil), nil // of a key that may be published by now
		})
		if _, err := s.Fetch(t.Context(), web, []string{database}); !errors.Is(err, ca.ErrUnavailable) {
			t.Error(err)
		}
	})
}

// A workload takes "denied" for good, but this machine's clock will be right again.
func TestReplyFromTheFutureIsNoDenial(t *testing.T) {
	var behind atomic.Int64
	behind.Store(int64(31 * time.Second))
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		for i := range 10 {
			if _, err := s.Fetch(t.Context(), []string{web, other}[i%2], []string{database}); !errors.Is(err, ca.ErrInternal) {
				t.Fatal(err)
			}
		}
		a.asked(2) // each order pauses by itself
		behind.Store(0)
		time.Sleep(13 * time.Second)
		fetch(t, s, database)
	}, func(c *jwtsvid.Config) {
		c.Now = func() time.Time { return time.Now().Round(0).Add(-time.Duration(behind.Load())) }
	})
}

func TestTokenFromTheFutureIsNotGivenOut(t *testing.T) {
	var ahead atomic.Int64
	ahead.Store(int64(time.Hour))
	now := func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) }
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			return token(t, "a", "a", claimsOf(req, claimSet{"iat": now().Unix(), "exp": now().Add(req.TTL).Unix()}), nil), nil
		})
		fetch(t, s, database)
		ahead.Store(0)
		if _, _, err := s.Validate(fetch(t, s, database), database, []string{"example.org"}); err != nil {
			t.Error(err)
		}
		fetch(t, s, database)
		a.asked(2)
	}, func(c *jwtsvid.Config) { c.Now = now })
}

func TestHangingAuthorityDelaysNoCallerBeyondItsPatience(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		first := fetch(t, s, database)
		a.answer(func(ctx context.Context, _ ca.JWTRequest) (ca.Token, error) { <-ctx.Done(); return "", ctx.Err() })
		time.Sleep(3 * time.Minute)
		began := time.Now()
		if fetch(t, s, database) != first || time.Since(began) > time.Second {
			t.Errorf("another token, or after %s", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := s.Fetch(ctx, web, []string{"https://x"}); !errors.Is(err, ca.ErrDeadline) {
			t.Error(err)
		}
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				_, err := s.Fetch(t.Context(), web, []string{fmt.Sprintf("https://%d", i)})
				if err == nil {
					t.Error("a token")
				}
			})
		}
		synctest.Wait()
		if n := a.calls.Load(); n > 70 {
			t.Errorf("%d calls at once", n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		if _, err := s.Fetch(t.Context(), web, []string{"https://late"}); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("closed: %v", err)
		}
	})
}

func TestOnlyAllowedAudiencesAreAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		for _, c := range []struct {
			audiences []string
			want      *ca.Error
		}{
			{nil, ca.ErrInvalid},
			{[]string{""}, ca.ErrInvalid},
			{[]string{"a\nb"}, ca.ErrInvalid},
			{[]string{strings.Repeat("x", 3000)}, ca.ErrInvalid},
			{slices.Repeat([]string{database}, 65), ca.ErrInvalid},
			{slices.Repeat([]string{"https://" + strings.Repeat("x", 1000)}, 9), ca.ErrInvalid},
			{[]string{"https://" + strings.Repeat("<", 1400)}, ca.ErrInvalid}, // \u003c
			{[]string{"databases"}, ca.ErrDenied},
			{[]string{"http://x"}, ca.ErrDenied},
			{[]string{"*"}, ca.ErrDenied},
			{[]string{database, "other"}, ca.ErrDenied},
		} {
			if _, err := s.Fetch(t.Context(), web, c.audiences); !errors.Is(err, c.want) {
				t.Errorf("%.40q: %v, want %v", c.audiences, err, c.want)
			}
		}
		a.asked(0)
	})
}

func TestRejectedCredentialIsReadAgainOnce(t *testing.T) {
	var rejected []ca.Token
	credentials := []ca.Token{"old-credential-0123456789", "new-credential-0123456789"}
	credential := func(c *jwtsvid.Config) {
		c.Token = func(context.Context) (ca.Bearer, error) {
			return ca.Bearer{Token: credentials[min(len(rejected), 1)]}, nil
		}
		c.TokenRejected = func(t ca.Token) { rejected = append(rejected, t) }
	}
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			if req.Token != credentials[1] {
				return "", ca.Errorf(ca.Unauthenticated, "%s has expired", req.Token.Reveal())
			}
			return token(t, "a", "a", claimsOf(req, nil), nil), nil
		})
		fetch(t, s, database)
		a.asked(2)
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			return "", ca.Errorf(ca.Unauthenticated, "%s has expired", req.Token.Reveal())
		})
		if _, err := s.Fetch(t.Context(), web, []string{"https://x"}); !errors.Is(err, ca.ErrUnauthenticated) || strings.Contains(err.Error(), "credential-") {
			t.Error(err)
		}
		a.asked(3)
	}, credential)
}

func TestRejectedCredentialCostsFewCallsWhateverIsAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.fail(ca.Errorf(ca.Unauthenticated, "expired"))
		for i := range 100 {
			if _, err := s.Fetch(t.Context(), web, []string{fmt.Sprintf("https://%d", i)}); !errors.Is(err, ca.ErrUnauthenticated) {
				t.Fatal(err)
			}
		}
		a.asked(1)
		a.answer(nil)
		time.Sleep(2 * time.Second)
		fetch(t, s, database)
	})
}

func TestMissingAbilityIsUnimplementedAndHasNoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{t: t}
		a.watch = func(context.Context, func([]byte) error) error { return ca.ErrUnimplemented }
		s, err := jwtsvid.New(jwtsvid.Config{Signer: a, Audiences: []string{"*"}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		synctest.Wait()
		if _, err := s.Fetch(t.Context(), web, []string{database}); !errors.Is(err, ca.ErrUnimplemented) {
			t.Error(err)
		}
		if got := string(s.Keys()); got != `{"keys":[]}` {
			t.Error(got)
		}
		a.asked(0)
	})
}

func TestWrongConfigIsRefused(t *testing.T) {
	for name, cfg := range map[string]jwtsvid.Config{
		"no signer":      {Audiences: []string{"a"}},
		"no audience":    {Signer: &authority{}},
		"empty audience": {Signer: &authority{}, Audiences: []string{""}},
		"star inside":    {Signer: &authority{}, Audiences: []string{"a*b"}},
		"long":           {Signer: &authority{}, Audiences: []string{"a"}, TTL: 2 * time.Hour},
		"short":          {Signer: &authority{}, Audiences: []string{"a"}, TTL: time.Second},
	} {
		if _, err := jwtsvid.New(cfg); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
