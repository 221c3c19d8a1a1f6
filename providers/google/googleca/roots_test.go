package googleca

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func TestWatcherGetsRootsNowAndAfterRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := start(t)
		c := server.open(t, server.settings())
		mustSign(t, c)
		w := testkit.WatchRoots(t, c)
		w.Gets(t, time.Second, server.pool.Bundle().PEM())
		w.Silent(t, time.Hour) // it is asked, and nothing changes
		if n := len(server.fetches()); n < 10 || n > 15 {
			t.Errorf("there were %d questions in an hour", n)
		}
		before := server.pool.Bundle()
		server.pool.Rotate()
		w.Gets(t, 6*time.Minute, server.pool.Bundle().PEM())
		server.pool.SetRoots(server.pool.Bundle().Union(before))
		w.Gets(t, 6*time.Minute, server.pool.Bundle().PEM())
		w.Stop()
		if err := w.Ended(); !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
}

func TestReplyUnderUnknownRootRefreshesRootsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := start(t)
		c := server.open(t, server.settings())
		mustSign(t, c)
		w := testkit.WatchRoots(t, c)
		w.Gets(t, time.Second, server.pool.Bundle().PEM())
		server.pool.Rotate()
		req, check := ask(t)
		req.ID = "7c1d6f6e-0c3c-4f5e-9a3a-2f1f6f0f9a10"
		reply, err := c.CSRSign(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Passes(t, reply, check) // it brings its own root
		w.Gets(t, time.Second, server.pool.Bundle().PEM())
	})
}

func TestRootsAreFetchedWithNewestRequestToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, log := start(t), &testkit.Log{}
		settings := server.settings()
		settings.Log = log.Logger()
		c := server.open(t, settings)
		w := testkit.WatchRoots(t, c)
		w.Silent(t, time.Hour)
		if _, err := c.Roots(t.Context()); !errors.Is(err, ca.ErrUnavailable) || len(server.fetches()) > 0 {
			t.Errorf("got %v and %d questions", err, len(server.fetches()))
		}
		mustSign(t, c)
		w.Gets(t, time.Second, server.pool.Bundle().PEM())
		if got := server.fetches()[0].metadata["authorization"]; got[0] != "Bearer "+theToken.Reveal() {
			t.Error("it was not asked for with the request's token")
		}
		server.set(func() { server.refuse = status.Error(codes.Unauthenticated, "expired "+theToken.Reveal()) })
		w.Silent(t, time.Hour)
		before := len(server.fetches())
		w.Silent(t, time.Hour)
		if n := len(server.fetches()) - before; n > 0 {
			t.Errorf("the token that was refused was shown %d times more", n)
		}
		server.set(func() { server.refuse = nil })
		server.pool.Rotate()
		req, _ := ask(t)
		req.ID, req.Token = "7c1d6f6e-0c3c-4f5e-9a3a-2f1f6f0f9a10", "another.token"
		if _, err := c.CSRSign(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		w.Gets(t, time.Second, server.pool.Bundle().PEM())
		if got := server.fetches()[len(server.fetches())-1].metadata["authorization"]; got[0] != "Bearer another.token" {
			t.Error("it was not asked for with the newest token")
		}
		if text := log.Take(); !strings.Contains(text, "no longer accepted") || strings.Contains(text, theToken.Reveal()[:20]) {
			t.Errorf("logged %s", text)
		}
	})
}

func TestFailedRootsFetchEndsWatchWithReason(t *testing.T) {
	t.Parallel()
	server := start(t)
	c := server.open(t, server.settings())
	mustSign(t, c)
	server.set(func() { server.refuse = busy(t, codes.ResourceExhausted, "quota") })
	err := c.WatchRoots(testkit.Within(t, time.Minute), func([]byte) error { return nil })
	mustBe(t, err, ca.ErrRateLimited, thePool+": quota")
	if ca.RetryAfter(err) != time.Minute {
		t.Errorf("to come back after %s", ca.RetryAfter(err))
	}
}

func TestHangingRootsFetchTakesWatchDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := start(t)
		c := server.open(t, server.settings())
		mustSign(t, c)
		server.set(func() { server.stall = true })
		begin := time.Now()
		mustBe(t, c.WatchRoots(t.Context(), func([]byte) error { return nil }), ca.ErrDeadline, thePool)
		if took := time.Since(begin); took != patience {
			t.Errorf("it took %s", took)
		}
	})
}

func TestWatchEndsWithCallersError(t *testing.T) {
	t.Parallel()
	server := start(t)
	c := server.open(t, server.settings())
	mustSign(t, c)
	enough := errors.New("enough")
	if err := c.WatchRoots(testkit.Within(t, time.Minute), func([]byte) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}
