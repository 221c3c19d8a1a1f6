package ra_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// returning is a pod of a service account that asks as a door does until it has a
// certificate, each time with another key.
func (h *house) returning(ctx context.Context, account string, n int) <-chan error {
	req := request()
	req.Subject.ServiceAccount, req.Subject.PodUID = account, fmt.Sprint(account, n)
	done := make(chan error, 1)
	go func() {
		for try := 0; ; try++ {
			req.CSR = empty((n + try) % 20)
			_, err := ra.Certify(ctx, h, req)
			if err == nil || ctx.Err() != nil {
				done <- err
				return
			}
			wait := min(max(ca.RetryAfter(err), time.Second), time.Minute)
			time.Sleep(wait + rand.N(wait/2))
		}
	}()
	return done
}

var errAway = ca.Errorf(ca.Unavailable, "the authority is away")

// What fails comes again and again, and asked first.
func TestPodGetsItsTurnBesideFailingOnesOfItsNamespace(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	fails := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	late := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		pods   int
		fail   func(context.Context) error
		limits ra.Limits
		head   time.Duration // of those that fail
		most   time.Duration
	}{
		"ten fail":                  {10, fails(errAway), ra.Limits{Rate: 7, Burst: 7}, 20 * time.Minute, time.Second},
		"1,000 fail":                {1000, fails(errAway), ra.Limits{Rate: 7, Burst: 7}, 20 * time.Minute, 2*time.Minute + time.Second},
		"300 fail one by one":       {300, fails(errAway), ra.Limits{Rate: 7, Burst: 7, InFlight: 1}, 10 * time.Minute, 2*time.Minute + time.Second},
		"300 have only just begun":  {300, fails(errAway), ra.Limits{Rate: 7, Burst: 7}, time.Minute, 2*time.Minute + time.Second},
		"100 are refused":           {100, fails(ca.ErrDenied), ra.Limits{Rate: 1, Burst: 1}, 10 * time.Minute, 3 * time.Second},
		"ten are answered late":     {10, late, ra.Limits{Rate: 7, Burst: 7}, 20 * time.Minute, 3 * time.Second},
		"300 are answered late":     {300, late, ra.Limits{Rate: 7, Burst: 7}, 10 * time.Minute, 3*time.Minute + time.Second},
		"ten exhaust the authority": {10, fails(ca.ErrRateLimited), ra.Limits{Rate: 7, Burst: 7}, 20 * time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(conf *ra.Config) { conf.Authorities[0].Limits = c.limits }, func(h *house) {
				h.ca.Before = func(ctx context.Context, req ca.SignRequest) error {
					if strings.HasSuffix(req.SubjectID, "/bad") {
						return c.fail(ctx)
					}
					return nil
				}
				ctx, cancel := context.WithCancel(h.t.Context())
				var bad []<-chan error
				for n := range c.pods {
					bad = append(bad, h.returning(ctx, "bad", n))
				}
				time.Sleep(c.head)
				begin := time.Now()
				timely, stop := context.WithTimeout(ctx, 15*time.Minute)
				defer stop()
				if err := <-h.returning(timely, "good", 0); err != nil {
					t.Errorf("it was never asked for: %v", err)
				}
				took := time.Since(begin)
				if took > c.most {
					t.Errorf("it waited for %s", took)
				}
				cancel()
				for _, done := range bad {
					if <-done == nil {
						t.Error("one that fails has a certificate")
					}
				}
			})
		})
	}
}
