package witsvid_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/witsvid"
)

func TestWITSVIDIsReplacedWithANewKeyBeforeItEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		notices, stop := follow(t, s, web)
		defer stop()
		first, key, ends := held(t, s, web)
		if left := time.Until(ends); left != 5*time.Minute || notices() != 1 {
			t.Errorf("it lives for %s, %d notices", left, notices())
		}
		time.Sleep(2*time.Minute - time.Second)
		a.wantCalls(1)
		time.Sleep(time.Minute + 2*time.Second) // 0.6 of its life is over
		synctest.Wait()
		second, next, _ := held(t, s, web)
		if a.wantCalls(2); second == first || string(next) == string(key) || notices() != 2 {
			t.Errorf("not replaced, or with the same key; %d notices", notices())
		}
	})
}

func TestHeldKeyIsThatOfTheRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		_, stop := follow(t, s, web)
		defer stop()
		_, key, _ := held(t, s, web)
		var private, public jose.JSONWebKey
		if err := errors.Join(json.Unmarshal(key, &private), json.Unmarshal(a.asked[0].PublicKey, &public)); err != nil {
			t.Fatal(err)
		}
		if private.IsPublic() || !public.IsPublic() || private.Algorithm != "ES256" || public.Algorithm != "ES256" {
			t.Fatal("not a private key and its request's public one, each with alg")
		}
		want, _ := json.Marshal(private.Public())
		if string(want) != string(a.asked[0].PublicKey) {
			t.Error("another key")
		}
	})
}

func TestManyFollowersCostOneCall(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		for range 100 {
			_, stop := follow(t, s, web)
			stop()
			_, stop = follow(t, s, web)
			defer stop()
		}
		a.wantCalls(1)
		if s.Status().Held != 1 {
			t.Errorf("%+v", s.Status())
		}
	})
}

func TestUnfollowedIsNotReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		_, stop := follow(t, s, web)
		stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, _, _, err := s.Held(web); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("an expired one is held: %v", err)
		}
		a.wantCalls(1)
	})
}

func TestFollowedAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		a.answer(func(context.Context, ca.WITRequest) (ca.Token, error) { return "", ca.Errorf(ca.Denied, "no") })
		for i := range 2048 {
			stop, err := s.Follow(fmt.Sprintf("spiffe://example.org/%d", i), func() {})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
		}
		if _, err := s.Follow(web, func() {}); !errors.Is(err, ca.ErrRateLimited) {
			t.Error(err)
		}
	})
}

func TestOutageIsBridgedAndCostsFewCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		_, stop := follow(t, s, web)
		defer stop()
		first, _, ends := held(t, s, web)
		a.answer(func(context.Context, ca.WITRequest) (ca.Token, error) { return "", ca.Errorf(ca.Unavailable, "away") })
		time.Sleep(time.Until(ends) - 6*time.Second)
		if now, _, _ := held(t, s, web); now != first {
			t.Error("another one")
		}
		time.Sleep(10 * time.Second)
		if _, _, _, err := s.Held(web); !errors.Is(err, ca.ErrUnavailable) {
			t.Error(err)
		}
		if n := a.calls(); n < 3 || n > 60 {
			t.Errorf("%d calls in an outage of two minutes", n)
		}
		a.answer(nil)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		held(t, s, web)
	})
}

func TestHangingAuthorityIsAskedOnceAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		a.answer(func(ctx context.Context, _ ca.WITRequest) (ca.Token, error) { <-ctx.Done(); return "", ctx.Err() })
		_, stop := follow(t, s, web)
		defer stop()
		time.Sleep(29 * time.Second)
		a.wantCalls(1)
	})
}

func TestWithdrawnKeyReplacesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		notices, stop := follow(t, s, web)
		defer stop()
		first, _, _ := held(t, s, web)
		a.answer(func(_ context.Context, req ca.WITRequest) (ca.Token, error) {
			return sign(t, keys()["b"], "b", "wit+jwt", claimsOf(req, nil)), nil
		})
		a.publish(jwks("b"))
		if second, _, _ := held(t, s, web); second == first || notices() != 2 {
			t.Errorf("it still has the WIT-SVID of a withdrawn key, %d notices", notices())
		}
		if !strings.Contains(string(s.Keys()), `"use":"wit-svid"`) || !strings.Contains(string(s.Keys()), `"kid":"b"`) {
			t.Errorf("keys: %s", s.Keys())
		}
	})
}

func TestMissingAbilityIsUnimplementedUntilItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{t: t, sets: make(chan []byte)}
		a.breakWatch(ca.Errorf(ca.Unimplemented, "none"))
		s, err := witsvid.New(witsvid.Config{Signer: a, Log: new(logtest.Log).Logger()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		_, stop := follow(t, s, web)
		defer stop()
		time.Sleep(time.Hour)
		if _, _, _, err := s.Held(web); !errors.Is(err, ca.ErrUnimplemented) || !s.Missing() || string(s.Keys()) != `{"keys":[]}` {
			t.Errorf("%v, missing: %v, keys: %s", err, s.Missing(), s.Keys())
		}
		if n := a.calls(); n > 1 { // at most before the watch had ended
			t.Errorf("the authority was asked %d times", n)
		}
		a.breakWatch(nil)
		time.Sleep(10 * time.Minute)
		a.publish(jwks("a"))
		held(t, s, web)
	})
}

// breakKeys ends the watch of the keys; the next ones end with err.
func (a *authority) breakKeys(err error) {
	a.breakWatch(err)
	a.publish([]byte("no keys"))
}

func TestAbilityThatIsLostForAWhileEndsNoWITSVID(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		_, stop := follow(t, s, web)
		defer stop()
		first, _, _ := held(t, s, web)
		a.breakKeys(ca.Errorf(ca.Unimplemented, "none"))
		time.Sleep(2 * time.Minute)
		if now, _, _ := held(t, s, web); now != first || !s.Missing() {
			t.Errorf("the same: %v, missing: %v", now == first, s.Missing())
		}
		time.Sleep(4 * time.Minute)
		if _, _, _, err := s.Held(web); !errors.Is(err, ca.ErrUnimplemented) {
			t.Errorf("after its end: %v", err)
		}
		a.breakWatch(ca.Errorf(ca.Unavailable, "starting"))
		time.Sleep(20 * time.Minute)
		a.breakWatch(nil)
		time.Sleep(2 * time.Minute)
		a.publish(jwks("a")) // the same keys as before
		held(t, s, web)
	})
}

// A proxy in front of an authority that starts may say that it lacks the method.
func TestCallThatIsUnimplementedOnceEndsNoWITSVID(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		_, stop := follow(t, s, web)
		defer stop()
		a.answer(func(context.Context, ca.WITRequest) (ca.Token, error) {
			a.answer(nil)
			return "", ca.Errorf(ca.Unimplemented, "no such method")
		})
		for range 10 {
			time.Sleep(time.Minute)
			synctest.Wait()
			held(t, s, web)
		}
	})
}

// An authority that is busy for a moment has all identities wait, but not until what is held has ended.
func TestRateLimitOutlastsNoWITSVID(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		ids := []string{web, web + "/a", web + "/b"}
		for _, id := range ids {
			_, stop := follow(t, s, id)
			defer stop()
		}
		for range 10 {
			a.answer(func(context.Context, ca.WITRequest) (ca.Token, error) { return "", ca.Errorf(ca.RateLimited, "busy") })
			time.Sleep(3*time.Minute + 10*time.Second)
			a.answer(nil)
			time.Sleep(time.Minute)
			for _, id := range ids {
				held(t, s, id)
			}
		}
	})
}

// An authority that is busy is not asked for all at the moment at which their common pause ends.
func TestSharedPauseEndsForEachAtAnotherTime(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		for i := range 200 {
			_, stop := follow(t, s, fmt.Sprint(web, "/", i))
			defer stop()
		}
		var mu sync.Mutex
		calls := map[time.Time]int{}
		a.answer(func(context.Context, ca.WITRequest) (ca.Token, error) {
			mu.Lock()
			calls[time.Now()]++
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			return "", ca.Errorf(ca.RateLimited, "busy")
		})
		time.Sleep(4 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for at, n := range calls {
			if n > 2 {
				t.Errorf("%d calls at %s", n, at.Format(time.TimeOnly))
			}
		}
		if len(calls) < 5 || len(calls) > 120 {
			t.Errorf("calls at %d times", len(calls))
		}
	})
}

func TestWITSVIDOfUnknownKeysIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{t: t, sets: make(chan []byte)}
		s, err := witsvid.New(witsvid.Config{Signer: a, Log: new(logtest.Log).Logger()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		_, stop := follow(t, s, web)
		defer stop()
		time.Sleep(6 * time.Second)
		if _, _, _, err := s.Held(web); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("before the keys are known: %v", err)
		}
		a.publish(jwks("a"))
		time.Sleep(10 * time.Second)
		held(t, s, web)
		a.breakKeys(ca.Errorf(ca.Unavailable, "away"))
		a.answer(func(_ context.Context, req ca.WITRequest) (ca.Token, error) {
			return sign(t, keys()["b"], "b", "wit+jwt", claimsOf(req, nil)), nil
		})
		time.Sleep(10 * time.Minute)
		if got := s.Status().Failures; got["reply"] != 0 || got["unavailable"] == 0 {
			t.Errorf("failures: %v", got)
		}
	})
}

func TestWITSVIDFromTheFutureIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		ahead.Store(int64(time.Hour))
		a := &authority{t: t, sets: make(chan []byte)}
		now := func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) }
		a.answer(func(_ context.Context, req ca.WITRequest) (ca.Token, error) {
			return sign(t, keys()["a"], "a", "wit+jwt", claimsOf(req, claimSet{"iat": now().Unix(), "nbf": now().Unix(), "exp": now().Add(req.TTL).Unix()})), nil
		})
		s, err := witsvid.New(witsvid.Config{Signer: a, Now: now, Log: new(logtest.Log).Logger()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		a.publish(jwks("a"))
		_, stop := follow(t, s, web)
		defer stop()
		first, _, _ := held(t, s, web)
		ahead.Store(0)
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if second, _, ends := held(t, s, web); second == first || time.Until(ends) > 5*time.Minute {
			t.Errorf("it ends in %s", time.Until(ends))
		}
	})
}

func TestRetryEndsPauses(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		for _, failure := range []error{ca.ErrDenied, ca.ErrUnauthenticated, ca.ErrUnimplemented} {
			a.answer(func(context.Context, ca.WITRequest) (ca.Token, error) { return "", failure })
			id := web + "/" + ca.ReasonFor(failure).String()
			_, stop := follow(t, s, id)
			defer stop()
			time.Sleep(30 * time.Minute)
			a.answer(nil)
			s.Retry()
			synctest.Wait()
			held(t, s, id)
		}
		a.breakKeys(ca.Errorf(ca.Unimplemented, "none"))
		time.Sleep(2 * time.Minute)
		a.breakWatch(nil)
		s.Retry()
		began := time.Now()
		if a.publish(jwks("a", "b")); time.Since(began) > 0 || s.Missing() || !strings.Contains(string(s.Keys()), `"kid":"b"`) {
			t.Errorf("the keys are not watched again: %s", s.Keys())
		}
	})
}

func TestBadRepliesAreRefused(t *testing.T) {
	cnf := func(raw []byte, more string) map[string]any {
		return map[string]any{"jwk": json.RawMessage(raw), more: "x"}
	}
	stranger, _ := json.Marshal(jose.JSONWebKey{Key: keys()["stranger"].Public(), Algorithm: "ES256"})
	for name, reply := range map[string]func(t *testing.T, req ca.WITRequest) ca.Token{
		"nothing": func(*testing.T, ca.WITRequest) ca.Token { return "" },
		"a JWT-SVID's type": func(t *testing.T, r ca.WITRequest) ca.Token {
			return sign(t, keys()["a"], "a", "JWT", claimsOf(r, nil))
		},
		"no type": func(t *testing.T, r ca.WITRequest) ca.Token { return sign(t, keys()["a"], "a", "", claimsOf(r, nil)) },
		"no kid": func(t *testing.T, r ca.WITRequest) ca.Token {
			return sign(t, keys()["a"], "", "wit+jwt", claimsOf(r, nil))
		},
		"unpublished key": func(t *testing.T, r ca.WITRequest) ca.Token {
			return sign(t, keys()["b"], "b", "wit+jwt", claimsOf(r, nil))
		},
		"wrong signature": func(t *testing.T, r ca.WITRequest) ca.Token {
			return sign(t, keys()["stranger"], "a", "wit+jwt", claimsOf(r, nil))
		},
		"another subject":    changed(claimSet{"sub": "spiffe://example.org/db"}),
		"an audience":        changed(claimSet{"aud": "db"}),
		"no audience in it":  changed(claimSet{"aud": []string{}}),
		"no expiry":          changed(claimSet{"exp": nil}),
		"a longer life":      changed(claimSet{"exp": time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC).Unix()}),
		"an end that is now": changed(claimSet{"exp": time.Date(2000, 1, 1, 0, 0, 4, 0, time.UTC).Unix()}),
		"a later beginning":  changed(claimSet{"nbf": time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC).Unix()}),
		"no cnf":             changed(claimSet{"cnf": nil}),
		"another key":        changed(claimSet{"cnf": map[string]any{"jwk": json.RawMessage(stranger)}}),
		"more in cnf": func(t *testing.T, r ca.WITRequest) ca.Token {
			return sign(t, keys()["a"], "a", "wit+jwt", claimsOf(r, claimSet{"cnf": cnf(r.PublicKey, "kid")}))
		},
		"no alg in cnf": func(t *testing.T, r ca.WITRequest) ca.Token {
			return sign(t, keys()["a"], "a", "wit+jwt", claimsOf(r, claimSet{"cnf": cnfWith(r, `"alg":"ES256",`, "")}))
		},
		"another alg in cnf": func(t *testing.T, r ca.WITRequest) ca.Token {
			return sign(t, keys()["a"], "a", "wit+jwt", claimsOf(r, claimSet{"cnf": cnfWith(r, "ES256", "ES384")}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
				a.answer(func(_ context.Context, req ca.WITRequest) (ca.Token, error) { return reply(t, req), nil })
				_, stop := follow(t, s, web)
				defer stop()
				time.Sleep(6 * time.Second) // the keys are waited for
				synctest.Wait()
				if _, _, _, err := s.Held(web); err == nil || s.Status().Failures["reply"] == 0 {
					t.Errorf("it is held: %v, %v", err, s.Status().Failures)
				}
			})
		})
	}
}

func changed(changes claimSet) func(*testing.T, ca.WITRequest) ca.Token {
	return func(t *testing.T, req ca.WITRequest) ca.Token {
		return sign(t, keys()["a"], "a", "wit+jwt", claimsOf(req, changes))
	}
}

func cnfWith(req ca.WITRequest, old, with string) map[string]any {
	text := strings.Replace(string(req.PublicKey), old, with, 1)
	if text == string(req.PublicKey) {
		panic("nothing to replace in " + text)
	}
	return map[string]any{"jwk": json.RawMessage(text)}
}

func TestKeysForAnotherUseAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *witsvid.Source) {
		before := string(s.Keys())
		for _, use := range []string{"", "sig", "jwt-svid", "x509-svid"} {
			a.publish(jwksOf(use, "b"))
			if now := string(s.Keys()); now != before || s.Status().KeysFailure == nil {
				t.Errorf("use %q: %s", use, now)
			}
			time.Sleep(time.Minute) // it watches again
		}
	})
}

func TestWrongConfigIsRefused(t *testing.T) {
	for _, cfg := range []witsvid.Config{{}, {Signer: &authority{}, TTL: time.Second}, {Signer: &authority{}, TTL: 2 * time.Hour}} {
		if _, err := witsvid.New(cfg); err == nil {
			t.Errorf("%+v", cfg)
		}
	}
}
