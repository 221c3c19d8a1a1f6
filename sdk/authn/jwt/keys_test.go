package jwt

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/sdk/authn"
)

// endpoint stands in for an issuer in a bubble of synctest.
type fakeIssuer struct {
	mu    sync.Mutex
	asked int
	ids   []string
	fails error
	slow  time.Duration
	life  time.Duration
}

func (f *fakeIssuer) fetch(ctx context.Context) (fetched, error) {
	f.mu.Lock()
	f.asked++
	slow := f.slow
	f.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return fetched{}, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails != nil {
		return fetched{}, f.fails
	}
	var set jws.Keys
	for _, id := range f.ids {
		set = append(set, jose.JSONWebKey{Key: keysOnce()["ed"].Public(), KeyID: id})
	}
	return fetched{set, f.life}, nil
}

func (f *fakeIssuer) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fakeIssuer) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func bubble(t *testing.T, story func(t *testing.T, f *fakeIssuer, k *keys)) {
	_ = keysOnce() // made outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		f := &fakeIssuer{ids: []string{"a"}, life: time.Hour}
		story(t, f, &keys{fetch: f.fetch, now: time.Now, log: slog.New(slog.DiscardHandler)})
	})
}

func mustFind(t *testing.T, k *keys, id string, want error) {
	t.Helper()
	found, err := k.find(t.Context(), id, "EdDSA")
	if !errors.Is(err, want) || (err == nil) != (len(found) == 1) {
		t.Errorf("%q: %d keys, %v; want %v", id, len(found), err, want)
	}
}

func TestUnknownKeyIsFetchedOnceAMinute(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeIssuer, k *keys) {
		mustFind(t, k, "a", nil)
		time.Sleep(minInterval)
		for i := range 1000 { // over a minute, in which a caller makes up IDs
			mustFind(t, k, strings.Repeat("x", i+1), authn.ErrRefused)
			time.Sleep(minInterval/1000 - time.Millisecond)
		}
		if f.count() != 2 {
			t.Errorf("the issuer was asked %d times", f.count())
		}
		f.change(func() { f.ids = []string{"a", "b"} })
		mustFind(t, k, "b", authn.ErrRefused)
		time.Sleep(2 * time.Second)
		mustFind(t, k, "b", nil)
		if f.count() != 3 {
			t.Errorf("the issuer was asked %d times", f.count())
		}
	})
}

func TestConcurrentCallersShareOneFetch(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeIssuer, k *keys) {
		f.slow = 5 * time.Second
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := k.find(ctx, "a", "EdDSA"); !errors.Is(err, authn.ErrUnavailable) {
				t.Errorf("the one that left: %v", err)
			}
		})
		synctest.Wait()
		for range 100 {
			all.Go(func() { mustFind(t, k, "a", nil) })
		}
		synctest.Wait()
		leave()
		all.Wait()
		if f.count() != 1 {
			t.Errorf("the issuer was asked %d times", f.count())
		}
	})
}

func TestKeysAreKeptWhileIssuerFails(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeIssuer, k *keys) {
		mustFind(t, k, "a", nil)
		f.change(func() { f.fails = errors.New("down") })
		for range 48 {
			time.Sleep(time.Hour)
			mustFind(t, k, "a", nil)
		}
		mustFind(t, k, "b", authn.ErrUnavailable) // it may be among those that cannot be had
	})
}

func TestStaleKeysAreUsedWhileTheIssuerHangs(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeIssuer, k *keys) {
		mustFind(t, k, "a", nil)
		f.change(func() { f.slow = time.Hour })
		time.Sleep(time.Hour)
		took := func(id string, want error) time.Duration {
			began := time.Now()
			mustFind(t, k, id, want)
			return time.Since(began)
		}
		for i := range 3 { // one fetch, which hangs
			if waited := took("a", nil); waited != staleAfter {
				t.Errorf("caller %d waited %s", i, waited)
			}
		}
		if waited := took("b", authn.ErrUnavailable); waited != fetchTimeout-3*staleAfter {
			t.Errorf("the caller with an unknown key waited %s", waited)
		}
		if waited := took("a", nil); waited > 0 {
			t.Errorf("after the fetch has failed: %s", waited)
		}
		if f.count() != 2 {
			t.Errorf("the issuer was asked %d times", f.count())
		}
		f.change(func() { f.slow, f.ids = 0, []string{"b"} })
		time.Sleep(minInterval)
		mustFind(t, k, "a", authn.ErrRefused) // it was withdrawn meanwhile
	})
}

func TestWithdrawnKeyIsRefusedAfterRefresh(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeIssuer, k *keys) {
		mustFind(t, k, "a", nil)
		f.change(func() { f.ids = []string{"b"} })
		time.Sleep(time.Hour - time.Second)
		mustFind(t, k, "a", nil)
		time.Sleep(time.Second)
		mustFind(t, k, "a", authn.ErrRefused)
		mustFind(t, k, "b", nil)
	})
}

func TestIssuerIsRetriedSoonWithoutKeys(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeIssuer, k *keys) {
		f.fails = errors.New("not up yet")
		mustFind(t, k, "a", authn.ErrUnavailable)
		f.change(func() { f.fails = nil })
		mustFind(t, k, "a", authn.ErrUnavailable)
		time.Sleep(firstInterval)
		mustFind(t, k, "a", nil)
	})
}

func TestClockSetBackDoesNotStopRefresh(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeIssuer, k *keys) {
		mustFind(t, k, "a", nil)
		k.now = func() time.Time { return time.Now().Add(-24 * time.Hour) }
		f.change(func() { f.ids = []string{"b"} })
		mustFind(t, k, "a", authn.ErrRefused)
		mustFind(t, k, "b", nil)
	})
}

func BenchmarkVerify(b *testing.B) {
	for _, c := range []struct {
		id        string
		algorithm jose.SignatureAlgorithm
	}{{"rsa", jose.RS256}, {"p256", jose.ES256}, {"ed", jose.EdDSA}} {
		b.Run(string(c.algorithm), func(b *testing.B) {
			v := fixed(b)
			key := keysOnce()[c.id]
			shown := with(sign(b, key, c.id, c.algorithm, claimsOf(issuer)))
			for b.Loop() {
				if _, err := v.Authenticate(b.Context(), shown); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
