package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/internal/test/figures"
)

// unmatched measures refusals of names that no rule matches.
func (d *demandBench) unmatched(ctx context.Context) error {
	return d.refused(ctx, "a name that no rule matches", func(i int) string { return fmt.Sprintf("n%d.example.com", i) })
}

// denied measures refusals by ask, which is called for the first of each name.
func (d *demandBench) denied(ctx context.Context) error {
	name := func(i int) string { return fmt.Sprintf("denied-%d.asked.example.org", i%refusals) }
	var took []time.Duration
	before := d.asked.Load()
	cpu, err := d.used(func() (err error) {
		took, err = timed(refusals, func(i int) error { return d.stream.must(ctx, name(i), false) })
		return err
	})
	if err != nil {
		return err
	}
	calls := d.asked.Load() - before
	bare, err := usedBy(d.asking.cmd, func() error {
		return pace(ctx, askRate, refusals, func(i int) error { return d.asking.stream.must(ctx, name(i), false) })
	})
	if err != nil {
		return err
	}
	row("a name that `ask` refuses, first: p50, p99; agent's CPU; bare gRPC and HTTP; calls of `ask`",
		fmt.Sprintf("%s; %s; %s; %d for %d", halfAndMost(took), ms2(cpu/refusals), ms2(bare/refusals), calls, refusals))
	before = d.asked.Load()
	if err := d.refused(ctx, "… repeated", name); err != nil {
		return err
	}
	row("… calls of `ask`", fmt.Sprint(d.asked.Load()-before))
	return nil
}

// refused measures refusals at a pace, and some at a time, beside those of a bare gRPC server.
func (d *demandBench) refused(ctx context.Context, what string, name func(i int) string) error {
	const n = 4 * perSecond
	took := make([]time.Duration, n)
	cpu := map[*exec.Cmd][2]time.Duration{}
	for _, server := range []*bareServer{d.bare, {d.agent, d.stream}} {
		ask := func(i int) error { return server.stream.must(ctx, name(i), false) }
		paced, err := usedBy(server.cmd, func() error {
			return pace(ctx, perSecond, n, func(i int) error {
				began := time.Now()
				err := ask(i)
				took[i] = time.Since(began)
				return err
			})
		})
		if err != nil {
			return err
		}
		busy, err := usedBy(server.cmd, func() error {
			var group errgroup.Group
			group.SetLimit(parallel)
			for i := range n {
				group.Go(func() error { return ask(i) })
			}
			return group.Wait()
		})
		if err != nil {
			return err
		}
		cpu[server.cmd] = [2]time.Duration{paced / n, busy / n}
	}
	slices.Sort(took)
	each := func(cpu [2]time.Duration) string { return fmt.Sprintf("%s (%s)", ms2(cpu[0]), ms2(cpu[1])) }
	row(fmt.Sprintf("%s, refused %d a second: p50, p99; agent's CPU (on a busy stream); bare gRPC", what, perSecond),
		fmt.Sprintf("%s; %s; %s", halfAndMost(took), each(cpu[d.agent]), each(cpu[d.bare.cmd])))
	return nil
}

func ms2(d time.Duration) string { return fmt.Sprintf("%.3f ms", milliseconds(d)) }

// pace calls do n times, so many a second, each in a goroutine.
func pace(ctx context.Context, rate, n int, do func(i int) error) error {
	var group errgroup.Group
	began := time.Now()
	for i := range n {
		if late := time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))); late > 0 {
			time.Sleep(late)
		}
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}

// flood asks for random names, while clients of Envoy want held names and one wants a new one.
func (d *demandBench) flood(ctx context.Context) error {
	held := func(i int) string { return fmt.Sprintf("a-held-%d.fresh.example.org", i%heldNames) }
	for i := range heldNames {
		if err := d.envoy.shake(ctx, held(i)); err != nil {
			return err
		}
	}
	pid, asked := d.agent.Process.Pid, d.asked.Load()
	before, err := figures.Resident(pid)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var beside sync.WaitGroup
	var most, refused, gaveUp atomic.Int64
	var took []time.Duration
	var honest time.Duration
	var heldErr, honestErr error
	beside.Go(func() { watchMemory(ctx, pid, &most) })
	beside.Go(func() { took, heldErr = d.envoy.shakeUntil(ctx, held) })
	beside.Go(func() {
		time.Sleep(floodFor / 4)
		honest, honestErr = d.envoy.reach(ctx, "a-honest.asked.example.org")
	})
	began := time.Now()
	cpu, err := d.used(func() error {
		return pace(ctx, floodRate, floodRate*int(floodFor/time.Second), func(int) error {
			try, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			served, err := d.stream.ask(try, fmt.Sprintf("r%s.asked.example.org", rand.Text()))
			switch {
			case served:
				return errors.New("a random name is served")
			case errors.Is(err, context.DeadlineExceeded):
				gaveUp.Add(1)
				return nil
			case err == nil:
				refused.Add(1)
			}
			return err
		})
	})
	lasted := time.Since(began)
	calls := d.asked.Load() - asked
	stop()
	beside.Wait()
	if err = errors.Join(err, heldErr, honestErr); err != nil {
		return err
	}
	rowOfFlood(lasted, cpu, float64(most.Load()-int64(before))/1024, refused.Load(), gaveUp.Load(), calls)
	row("… meanwhile in Envoy: a held name's p50, p99; an honest new name", fmt.Sprintf("%s; %s", halfAndMost(took), ms(honest)))
	return nil
}

func rowOfFlood(lasted, cpu time.Duration, mib float64, refused, gaveUp, calls int64) {
	all := float64(refused + gaveUp)
	row(fmt.Sprintf("%d random names a second for %s: a second; refused; agent's memory, CPU; calls of `ask` a second", floodRate, floodFor), fmt.Sprintf("%.0f; %.0f %%, the others gave up after 2 s; +%.0f MiB, %.2f cores; %.0f",
		all/lasted.Seconds(), 100*float64(refused)/all, mib, cpu.Seconds()/lasted.Seconds(), float64(calls)/lasted.Seconds()))
}

// watchMemory keeps the most resident memory that the process has, in KiB.
func watchMemory(ctx context.Context, pid int, most *atomic.Int64) {
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if kib, err := figures.Resident(pid); err == nil {
			most.Store(max(most.Load(), int64(kib)))
		}
	}
}
