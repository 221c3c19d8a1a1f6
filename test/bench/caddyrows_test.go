package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	caddyNew     = 200  // one after the other
	caddyHeld    = 1000 // asked for in turn
	caddyAtOnce  = 100  // handshakes for one name
	caddyFlood   = 10 * time.Second
	pebbleNew    = 5  // one after the other
	pebbleAtOnce = 16 // 8 at a time: Caddy places 10 orders in 10 s with one account
)

// ownCA measures a server with a CA of its own.
func ownCA(ctx context.Context, c *contestant) (all []result, err error) {
	for _, rows := range []func(context.Context, *contestant) ([]result, error){newAndHeld, oneName, askDown, manyNames, agentRestarted, randomNames} {
		more, err := rows(ctx, c)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

func freshName(kind string, i int) string { return fmt.Sprintf("%s-%d.fresh.example.org", kind, i) }

// perSecondOf calls do n times, parallel at a time, and returns how many there were in a second.
func perSecondOf(n int, do func(i int) error) (float64, error) {
	var group errgroup.Group
	group.SetLimit(parallel)
	began := time.Now()
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	err := group.Wait()
	return float64(n) / time.Since(began).Seconds(), err
}

func rate(figure string, perSecond float64) result {
	return result{figure, fmt.Sprintf("%.0f", perSecond), perSecond}
}

func timesOf(figure string, took []time.Duration) result {
	return result{figure, halfAndMost(took), milliseconds(percentile(took, 50))}
}

func newAndHeld(ctx context.Context, c *contestant) ([]result, error) {
	first, err := timed(caddyNew, func(i int) error { return c.shake(ctx, freshName("a", i)) })
	if err != nil {
		return nil, err
	}
	fresh, err := perSecondOf(caddyHeld, func(i int) error { return c.shake(ctx, freshName("held", i)) })
	if err != nil {
		return nil, err
	}
	held, err := timed(caddyHeld, func(i int) error { return c.shake(ctx, freshName("held", i)) })
	if err != nil {
		return nil, err
	}
	heldAtOnce, err := perSecondOf(4*caddyHeld, func(i int) error { return c.shake(ctx, freshName("held", i%caddyHeld)) })
	return []result{
		timesOf("a new name, a CA of its own: p50, p99", first), rate("… new names a second, 8 at a time", fresh),
		timesOf("a held name of 1,000, in turn: p50, p99", held), rate("… handshakes a second, 8 at a time", heldAtOnce),
	}, err
}

// certificatesOf makes handshakes for one name, all at once, and returns how many different certificates
// there were.
func (c *contestant) certificatesOf(ctx context.Context, name string) (int, time.Duration, error) {
	var mu sync.Mutex
	serials := map[string]bool{}
	var group errgroup.Group
	began := time.Now()
	for range caddyAtOnce {
		group.Go(func() error {
			cert, err := c.certificate(ctx, name)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				serials[cert.SerialNumber.String()] = true
			}
			return err
		})
	}
	err := group.Wait()
	return len(serials), time.Since(began), err
}

func oneName(ctx context.Context, c *contestant) ([]result, error) {
	asked := c.asked.Load()
	n, took, err := c.certificatesOf(ctx, "one.asked.example.org")
	return []result{{fmt.Sprintf("%d handshakes at once for one new name: certificates, calls of `ask`; all after", caddyAtOnce), fmt.Sprintf("%d, %d; %s", n, c.asked.Load()-asked, ms(took)), milliseconds(took)}}, err
}

// askDown restarts the server while ask is down. Its names were asked for before.
func askDown(ctx context.Context, c *contestant) ([]result, error) {
	name := func(i int) string { return fmt.Sprintf("down-%d.asked.example.org", i) }
	for i := range heldNames {
		if err := c.shake(ctx, name(i)); err != nil {
			return nil, err
		}
	}
	c.askDown.Store(true)
	defer c.askDown.Store(false)
	c.stop()
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	served := 0
	for i := range heldNames {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		if c.shake(try, name(i)) == nil {
			served++
		}
		cancel()
	}
	return []result{{"`ask` down, restart: held names served", fmt.Sprintf("%d of %d", served, heldNames), 0}}, nil
}

// manyNames fills the server, and restarts it.
func manyNames(ctx context.Context, c *contestant) ([]result, error) {
	shake := func(i int) error { return c.shake(ctx, manyName(i)) }
	if _, err := perSecondOf(*demandNames, shake); err != nil {
		return nil, err
	}
	peak, each, err := c.peak()
	if err != nil {
		return nil, err
	}
	c.stop()
	began := time.Now()
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	if _, err := c.reach(ctx, manyName(0)); err != nil {
		return nil, err
	}
	first := time.Since(began)
	if _, err := perSecondOf(*demandNames, shake); err != nil {
		return nil, err
	}
	all := time.Since(began)
	again, eachAgain, err := c.peak()
	return []result{
		{fmt.Sprintf("%d names: peak memory, MiB (Envoy, agent)", *demandNames), memoryOf(peak, each), peak},
		{"… restarted: a first handshake after", fmt.Sprintf("%.2f s", first.Seconds()), first.Seconds()},
		{"… one with each name after", fmt.Sprintf("%.1f s", all.Seconds()), all.Seconds()},
		{"… peak memory since, MiB", memoryOf(again, eachAgain), again},
	}, err
}

// agentRestarted restarts the agent alone. Handshakes with held names go on.
func agentRestarted(ctx context.Context, c *contestant) ([]result, error) {
	r := result{figure: "… the agent alone restarted: a new name after; held names meanwhile", value: "–"}
	if c.restartAgent == nil {
		return []result{r}, nil
	}
	var beside sync.WaitGroup
	var took []time.Duration
	var heldErr error
	held, stop := context.WithCancel(ctx)
	defer stop()
	beside.Go(func() { took, heldErr = c.shakeUntil(held, func(i int) string { return manyName(i % heldNames) }) })
	began := time.Now()
	err := c.restartAgent()
	if err == nil {
		_, err = c.reach(ctx, freshName("again", 0))
	}
	back := time.Since(began)
	stop()
	beside.Wait()
	r.value = fmt.Sprintf("%.2f s; %d, none failed", back.Seconds(), len(took))
	return []result{r}, errors.Join(err, heldErr)
}

func memoryOf(sum float64, each []string) string {
	if len(each) == 1 {
		return each[0]
	}
	return fmt.Sprintf("%.0f (%s)", sum, strings.Join(each, ", "))
}

// randomNames makes handshakes with random names, beside those with held names and an honest new one.
func randomNames(ctx context.Context, c *contestant) ([]result, error) {
	asked := c.asked.Load()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var beside sync.WaitGroup
	var took []time.Duration
	honest := result{figure: "… an honest new name", value: "none until the end"}
	var heldErr error
	beside.Go(func() { took, heldErr = c.shakeUntil(ctx, func(i int) string { return manyName(i % heldNames) }) })
	beside.Go(func() {
		time.Sleep(caddyFlood / 4)
		if took, err := c.reach(ctx, "honest.asked.example.org"); err == nil {
			honest.value, honest.number = ms(took), milliseconds(took)
		}
	})
	var refused, gaveUp atomic.Int64
	began := time.Now()
	err := pace(ctx, floodRate, floodRate*int(caddyFlood/time.Second), func(int) error {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		switch err := c.shake(try, fmt.Sprintf("r%s.asked.example.org", rand.Text())); {
		case err == nil:
			return errors.New("a random name is served")
		case try.Err() != nil:
			gaveUp.Add(1)
		default:
			refused.Add(1)
		}
		return nil
	})
	lasted := time.Since(began)
	stop()
	beside.Wait()
	sum, each, peakErr := c.peak()
	all := float64(refused.Load() + gaveUp.Load())
	calls := c.asked.Load() - asked
	return []result{
		{fmt.Sprintf("%d random names a second for %s: a second; refused, the others gave up after 2 s", floodRate, caddyFlood), fmt.Sprintf("%.0f; %.0f %%", all/lasted.Seconds(), 100*float64(refused.Load())/all), all / lasted.Seconds()},
		{"… calls of `ask`", fmt.Sprint(calls), float64(calls)},
		timesOf("… meanwhile a held name: p50, p99", took),
		honest,
		{"… peak memory, MiB", memoryOf(sum, each), sum},
	}, errors.Join(err, heldErr, peakErr)
}

// withPebble measures a server with a real ACME CA.
func withPebble(ctx context.Context, c *contestant, p *pebble) ([]result, error) {
	first, err := timed(pebbleNew, func(i int) error { return c.shake(ctx, freshName("p", i)) })
	if err != nil {
		return nil, err
	}
	before := p.orders()
	n, _, err := c.certificatesOf(ctx, freshName("pone", 0))
	if err != nil {
		return nil, err
	}
	orders := p.orders() - before
	perSecond, err := perSecondOf(pebbleAtOnce, func(i int) error { return c.shake(ctx, freshName("par", i)) })
	return []result{
		timesOf("a new name, Pebble: p50, p99", first),
		{fmt.Sprintf("… %d handshakes at once for one: orders, certificates", caddyAtOnce), fmt.Sprintf("%d, %d", orders, n), 0},
		{fmt.Sprintf("… new names a second, %d names, 8 at a time", pebbleAtOnce), fmt.Sprintf("%.1f", perSecond), perSecond},
	}, err
}
