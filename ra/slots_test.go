package ra_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// goroutine is the number of the one that calls it, as traces have it.
func goroutine() string {
	var trace [64]byte
	fields := strings.Fields(string(trace[:runtime.Stack(trace[:], false)]))
	return fields[1]
}

func oneSlot(c *ra.Config) {
	c.Authorities[0].Limits = ra.Limits{Rate: 100, Burst: 100, InFlight: 1}
	c.Authorities[0].Timeout = 5 * time.Second
}

func TestCallsOfASlotShareAGoroutine(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Authorities[0].Limits.InFlight = 2 }, func(h *house) {
		workers := map[string]int{}
		h.ca.Before = func(context.Context, ca.SignRequest) error {
			h.ca.Set(func() { workers[goroutine()]++ })
			return nil
		}
		var all []<-chan error
		for n := range 20 {
			all = append(all, h.in(h.t.Context(), "shop", n))
		}
		for _, done := range all {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if len(workers) > 2 {
			t.Errorf("20 calls in 2 slots ran on the goroutines %v", workers)
		}
	})
}

// A client that returns after its call was settled changes nothing but that its slot is free.
func TestReplyThatComesTooLateIsOfNoUse(t *testing.T) {
	for name, hang := range map[string]func(c *ra.Config, until <-chan struct{}){
		"the request": func(*ra.Config, <-chan struct{}) {},
		"the token": func(c *ra.Config, until <-chan struct{}) {
			c.Authorities[0].Token = func(context.Context) (ca.Bearer, error) { <-until; return ca.Bearer{Token: "token"}, nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			var release chan struct{}
			inBubble(t, func(c *ra.Config) {
				release = make(chan struct{})
				oneSlot(c)
				hang(c, release)
			}, func(h *house) {
				h.ca.Before = func(context.Context, ca.SignRequest) error { <-release; return nil }
				begin := time.Now()
				if err := <-h.in(h.t.Context(), "shop", 0); !errors.Is(err, ca.ErrDeadline) || time.Since(begin) != 6*time.Second {
					t.Errorf("got %v after %s", err, time.Since(begin))
				}
				next := h.in(h.t.Context(), "other", 1)
				time.Sleep(time.Minute)
				if s := h.Status()[0]; s.Waiting != 1 || len(h.results()) != 1 {
					t.Errorf("beside a hanging call in the only slot: %+v, outcomes %q", s, h.results())
				}
				close(release)
				if err := <-next; err != nil {
					t.Error(err)
				}
				if lines := h.paper.Lines(t, "issued"); len(lines) != 1 || len(h.paper.Lines(t, "discarded")) != 0 {
					t.Errorf("the audit log has %v", lines)
				}
			})
		})
	}
}

func TestClosingDoesNotWaitForAHangingClient(t *testing.T) {
	inBubble(t, oneSlot, func(h *house) {
		release := make(chan struct{})
		h.ca.Before = func(context.Context, ca.SignRequest) error { <-release; return nil }
		done := h.in(h.t.Context(), "shop", 0)
		synctest.Wait()
		begin := time.Now()
		h.Close()
		if err := <-done; !errors.Is(err, ca.ErrUnavailable) || time.Since(begin) > time.Second {
			t.Errorf("got %v after %s", err, time.Since(begin))
		}
		close(release) // its goroutine ends, or synctest fails the test
	})
}
