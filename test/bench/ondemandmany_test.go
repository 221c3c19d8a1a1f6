package bench

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/internal/test/figures"
)

func manyName(i int) string { return fmt.Sprintf("many-%d.fresh.example.org", i) }

// many measures an agent that holds many names on one stream, and its restart. It begins with a new
// process, which has no memory left of what was measured before.
func (d *demandBench) many(ctx context.Context) error {
	d.stop()
	if err := d.start(ctx); err != nil {
		return err
	}
	if err := d.stream.must(ctx, "first.fresh.example.org", true); err != nil {
		return err
	}
	pid := d.agent.Process.Pid
	time.Sleep(settle)
	before, err := figures.Resident(pid)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(parallel)
	began := time.Now()
	cpu, err := d.used(func() error {
		for i := range *demandNames {
			group.Go(func() error { return d.stream.must(ctx, manyName(i), true) })
		}
		return group.Wait()
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	time.Sleep(settle)
	after, err := figures.Resident(pid)
	if err != nil {
		return err
	}
	row(fmt.Sprintf("%d more names on the stream: until all are held; agent's CPU, memory a name", *demandNames), fmt.Sprintf("%.1f s; %s, %.1f KiB", took.Seconds(), ms2(cpu/time.Duration(*demandNames)), float64(after-before)/float64(*demandNames)))
	return d.restart(ctx)
}

// restart measures how soon the names are served again to a client that asks for all of them at once.
func (d *demandBench) restart(ctx context.Context) error {
	d.stop()
	began := time.Now()
	if err := d.start(ctx); err != nil {
		return err
	}
	late, err := d.all(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began)
	cpu, err := figures.CPU(d.agent.Process.Pid)
	if err != nil {
		return err
	}
	peak, err := peakOf(d.agent.Process.Pid)
	row("… the agent restarted: to the first, to all, late ones that were asked for again; agent's CPU; peak memory",
		fmt.Sprintf("%.2f s, %.1f s, %d; %.1f s; %.0f MiB", d.stream.firstAnswer().Sub(began).Seconds(), took.Seconds(), late, cpu.Seconds(), peak))
	return err
}

// all asks for all names in one request, and again for each that is refused as it was not read within
// the rule's wait.
func (d *demandBench) all(ctx context.Context) (late int, err error) {
	names := make([]string, *demandNames)
	for i := range names {
		names[i] = manyName(i)
	}
	slots, err := d.stream.subscribe(names...)
	for name, slot := range slots {
		var served bool
		select {
		case served = <-slot:
		case <-d.stream.done:
			return late, fmt.Errorf("the stream ended: %w", d.stream.err)
		case <-ctx.Done():
			return late, ctx.Err()
		}
		for ; !served && err == nil; late++ {
			served, err = d.stream.ask(ctx, name)
		}
	}
	return late, err
}
