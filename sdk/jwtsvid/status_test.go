package jwtsvid_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/tracetest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/trace"
)

const credential = "sesame-open-sesame-open"

func withCredential(c *jwtsvid.Config) {
	c.Token = func(context.Context) (ca.Bearer, error) { return ca.Bearer{Token: credential}, nil }
}

func TestStatusShowsSignedAndHeldTokens(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		if now := s.Status(); !slices.Equal(now.Keys, []string{"a"}) || !now.KeysAt.Equal(time.Now()) || now.KeysFailure != nil || now.Held+now.Signed+now.Refused != 0 || now.Failing {
			t.Errorf("%+v", now)
		}
		fetch(t, s, database)
		fetch(t, s, "https://b")
		if now := s.Status(); now.Held != 2 || now.Signed != 2 || now.Failure != nil {
			t.Errorf("%+v", now)
		}
		if _, err := s.Fetch(t.Context(), web, []string{"http://b"}); !errors.Is(err, ca.ErrDenied) || s.Status().Refused != 1 {
			t.Errorf("%v, %+v", err, s.Status())
		}
		time.Sleep(5 * time.Minute)
		if now := s.Status(); now.Held != 0 || now.Signed != 2 {
			t.Errorf("of ended tokens, %+v are held", now)
		}
		a.publish(jwks("a", "b"))
		if now := s.Status(); !slices.Equal(now.Keys, []string{"a", "b"}) || !now.KeysAt.Equal(time.Now()) {
			t.Errorf("%+v", now)
		}
	})
}

func TestStatusShowsWhyNothingIsSigned(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		for reason, reply := range map[string]func(context.Context, ca.JWTRequest) (ca.Token, error){
			"unavailable": func(context.Context, ca.JWTRequest) (ca.Token, error) {
				return "", ca.Errorf(ca.Unavailable, "away\x1b: %s", credential)
			},
			"denied":         func(context.Context, ca.JWTRequest) (ca.Token, error) { return "", ca.Errorf(ca.Denied, "no") },
			"unknown":        func(context.Context, ca.JWTRequest) (ca.Token, error) { return "", errors.New("odd") },
			jwtsvid.BadReply: func(context.Context, ca.JWTRequest) (ca.Token, error) { return "nonsense", nil },
		} {
			a.answer(reply)
			if _, err := s.Fetch(t.Context(), web, []string{"https://" + strings.ReplaceAll(reason, " ", "-")}); err == nil {
				t.Fatal("a token")
			}
			now := s.Status()
			if now.Failures[reason] != 1 || !now.Failing || now.Failure.Reason != reason || !now.Failure.At.Equal(time.Now()) || !now.Failure.NextTry.After(time.Now()) {
				t.Errorf("%s: %+v, %+v", reason, now, now.Failure)
			}
			if strings.Contains(now.Failure.Text, credential) || strings.Contains(now.Failure.Text, "\x1b") {
				t.Errorf("%q", now.Failure.Text)
			}
			time.Sleep(2 * time.Minute) // the longest pause
		}
		a.answer(nil)
		fetch(t, s, database)
		if now := s.Status(); now.Failing || now.Failure == nil {
			t.Errorf("after a success: %+v", now)
		}
	}, withCredential)
}

// Counters that begin at 1 look to Prometheus as if nothing had happened.
func TestAllReasonsAreCountedFromTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *authority, s *jwtsvid.Source) {
		all := s.Status().Failures
		for _, reason := range []string{"unknown", "unavailable", "canceled", jwtsvid.BadReply} {
			if n, there := all[reason]; n != 0 || !there {
				t.Errorf("%q is not in %v", reason, all)
			}
		}
	})
}

func TestStatusShowsThatKeysAreNotFollowed(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.publish([]byte("nonsense"))
		now := s.Status()
		if len(now.Keys) != 1 || now.KeysFailure == nil || now.KeysFailure.Reason != "internal error" || now.Missing {
			t.Errorf("%+v", now)
		}
		time.Sleep(3 * time.Second)
		a.publish(jwks("b"))
		if now = s.Status(); now.KeysFailure != nil || !slices.Equal(now.Keys, []string{"b"}) {
			t.Errorf("%+v", now)
		}
	})
}

func TestStatusShowsThatTheAbilityIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lacking := &authority{t: t, watch: func(context.Context, func([]byte) error) error { return ca.ErrUnimplemented }}
		s, err := jwtsvid.New(jwtsvid.Config{Signer: lacking, Audiences: []string{database}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close() //nolint:errcheck // it has no error
		synctest.Wait()
		now := s.Status()
		if text, err := json.Marshal(now); err != nil || !now.Missing || !strings.Contains(string(text), `"keys":[]`) {
			t.Errorf("%s, %v", text, err)
		}
		if wait := time.Until(now.KeysFailure.NextTry); wait < 7*time.Minute {
			t.Errorf("it is asked again in %s", wait)
		}
	})
}

func TestEachTokenOfTheAuthorityIsATrace(t *testing.T) {
	tracer := &tracetest.Tracer{}
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.answer(func(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
			if trace.Parent(ctx) == "" {
				t.Error("the provider is called outside the trace")
			}
			return token(t, "a", "a", claimsOf(req, nil), nil), nil
		})
		fetch(t, s, database)
		fetch(t, s, database) // held
		a.fail(ca.Errorf(ca.Unavailable, "no answer for %s", credential))
		if _, err := s.Fetch(t.Context(), web, []string{"https://b"}); err == nil {
			t.Fatal("a token")
		}
		all, signs := tracer.All(t, "jwt_svid.issue"), tracer.All(t, "sign")
		if len(all) != 2 || len(signs) != 2 || len(tracer.All(t, "token")) != 2 {
			t.Fatalf("%+v, %+v", all, signs)
		}
		if got := all[0].Attrs; got["countersign.identity"] != web || got["countersign.audiences"] != database || all[0].Failed != "" || signs[0].Above.Name != "jwt_svid.issue" {
			t.Errorf("%+v", all[0])
		}
		for _, failed := range []string{all[1].Failed, signs[1].Failed} {
			if !strings.Contains(failed, "no answer") || strings.Contains(failed, credential) {
				t.Errorf("%q", failed)
			}
		}
	}, withCredential, func(c *jwtsvid.Config) { c.Tracer = tracer })
}
