package tokenreview

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestGoodAnswerIsCachedAtMostUntilTokenExpiry(t *testing.T) {
	s := newAPIServer(t)
	for name, test := range map[string]struct {
		token ca.Token
		keep  time.Duration
		asked map[time.Duration]bool // after so long: is it asked again?
	}{
		"a long token":     {tokenOf("web", time.Hour), 0, map[time.Duration]bool{0: false, defaultKeep - 1: false, defaultKeep: true}},
		"a short token":    {tokenOf("web", time.Minute), 0, map[time.Duration]bool{time.Minute - 1: false, time.Minute: true}},
		"an ended one":     {tokenOf("web", -time.Minute), 0, map[time.Duration]bool{0: true}},
		"without an end":   {"opaque", 0, map[time.Duration]bool{defaultKeep - 1: false, defaultKeep: true}},
		"as long as set":   {tokenOf("web", time.Hour), maxKeep, map[time.Duration]bool{maxKeep - 1: false, maxKeep: true}},
		"a clock set back": {tokenOf("web", time.Hour), 0, map[time.Duration]bool{-time.Second: true}},
	} {
		for after, wanted := range test.asked {
			clock, cfg := now, s.config()
			cfg.Now, cfg.Keep = func() time.Time { return clock }, test.keep
			r := reviewer(t, cfg)
			before := s.asked.Load()
			first, err := r.Authenticate(t.Context(), with(test.token))
			clock = now.Add(after)
			again, err2 := r.Authenticate(t.Context(), with(test.token))
			if err != nil || err2 != nil || first != again {
				t.Errorf("%s: %v, %v", name, err, err2)
			}
			if got := s.asked.Load()-before == 2; got != wanted {
				t.Errorf("%s, after %s: asked again %v", name, after, got)
			}
		}
	}
}

func TestRefusalIsNotCached(t *testing.T) {
	s := newAPIServer(t)
	r := reviewer(t, s.config())
	token := tokenOf("web", time.Hour)
	s.says(map[string]any{"error": "service account token is not valid yet"})
	if _, err := r.Authenticate(t.Context(), with(token)); !errors.Is(err, authn.ErrRefused) {
		t.Errorf("first: %v", err)
	}
	s.says(good())
	if _, err := r.Authenticate(t.Context(), with(token)); err != nil {
		t.Errorf("then: %v", err)
	}
}

func TestCacheIsBoundedAndHoldsNoToken(t *testing.T) {
	s := newAPIServer(t)
	cfg := s.config()
	cfg.Most = 10
	r := reviewer(t, cfg)
	for i := range 30 {
		if _, err := r.Authenticate(t.Context(), with(tokenOf(fmt.Sprint("web", i), time.Hour))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.cache.byToken); n != 10 {
		t.Errorf("%d answers are kept", n)
	}
	if shown := fmt.Sprintf("%+v", r.cache.byToken); strings.Contains(shown, "eyJhbGciOiJSUzI1NiJ9") {
		t.Errorf("a token is kept: %s", shown)
	}
}

func TestExpiredEntriesAreEvictedFirst(t *testing.T) {
	k := &cache{most: 3, byToken: map[tokenKey]entry{}}
	for i := range byte(3) {
		k.put(tokenKey{i}, authn.Identity{}, now.Add(time.Duration(i)*time.Minute), now)
	}
	k.put(tokenKey{9}, authn.Identity{}, now.Add(time.Hour), now.Add(time.Minute))
	for key, want := range map[tokenKey]bool{{0}: false, {1}: false, {2}: true, {9}: true} {
		if _, ok := k.byToken[key]; ok != want {
			t.Errorf("%v is kept: %v", key[0], ok)
		}
	}
}

func BenchmarkReview(b *testing.B) {
	s := newAPIServer(b)
	shown := with(tokenOf("web", time.Hour))
	b.Run("asked", func(b *testing.B) {
		r := reviewer(b, s.config())
		for b.Loop() {
			if _, err := r.review(b.Context(), shown.Token); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("kept", func(b *testing.B) {
		r := reviewer(b, s.config())
		for b.Loop() {
			if _, err := r.Authenticate(b.Context(), shown); err != nil {
				b.Fatal(err)
			}
		}
	})
}
