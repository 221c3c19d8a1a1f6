package bench

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

const (
	streamRuns = 3
	rotations  = 5
	// quiet is how long the acknowledgements may take that follow the last answer.
	quiet = 300 * time.Millisecond
)

// crowding is how many streams there are, and on what.
type crowding struct {
	streams int
	shared  bool
	bare    bool // of gRPC's own health service: the least that a stream costs
	spiffe  bool // of the SPIFFE Workload API, not SDS
}

func (c crowding) String() string {
	if c.bare {
		return fmt.Sprintf("for comparison: %d streams of gRPC's health service, each on its own connection", c.streams)
	}
	if c.spiffe {
		return fmt.Sprintf("%d streams of the Workload API, each on its own connection", c.streams)
	}
	if c.shared {
		return fmt.Sprintf("%d streams on one connection", c.streams)
	}
	return fmt.Sprintf("%d streams, each on its own connection", c.streams)
}

// cost is what a run came to. Memory is that of one stream, in KiB.
type cost struct {
	resident, heap, stacks float64
	answered               time.Duration
	rotated                time.Duration // median of the run's rotations
	cpu                    time.Duration // of the server, for a push to one stream
}

// streams measures what streams cost the server.
func (b *bench) streams() error {
	if err := raiseFiles(); err != nil {
		return err
	}
	return b.compare(
		crowding{streams: 1000}, crowding{streams: 1000, shared: true}, crowding{streams: 1000, spiffe: true},
		crowding{streams: 5000}, crowding{streams: 5000, shared: true}, crowding{streams: 5000, bare: true},
	)
}

// compare has the kinds take turns.
func (b *bench) compare(kinds ...crowding) error {
	costs := make([][]cost, len(kinds))
	for range streamRuns {
		for i, kind := range kinds {
			c, err := b.crowded(kind)
			if err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			costs[i] = append(costs[i], c)
		}
	}
	fmt.Println("\n| Server of streams, client on the same cores | memory for a stream, resident (heap + stacks) | all answered | rotation to the last stream | server's CPU for a push and stream |\n|---|---|---|---|---|")
	for i, kind := range kinds {
		m := medianCost(costs[i])
		rotation := fmt.Sprintf("%.2f s | %.1f µs", m.rotated.Seconds(), float64(m.cpu)/float64(time.Microsecond))
		if kind.bare {
			rotation = "- | -"
		}
		fmt.Printf("| %s | %.1f KiB (%.1f + %.1f) | %.2f s | %s |\n", kind, m.resident, m.heap, m.stacks, m.answered.Seconds(), rotation)
	}
	return nil
}

// raiseFiles lets this process and its children have as many files as they may.
func raiseFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// crowded makes one run with a server of its own.
func (b *bench) crowded(kind crowding) (cost, error) {
	server, err := b.serve()
	if err != nil {
		return cost{}, err
	}
	if err := appear(server.socket); err != nil {
		return cost{}, err
	}
	crowd, err := newCrowd(server.socket, kind)
	if err != nil {
		return cost{}, err
	}
	c, err := measure(server, crowd, kind.streams)
	crowd.close()
	return c, errors.Join(err, server.close())
}

func measure(s *server, crowd *crowd, streams int) (c cost, err error) {
	if _, err := crowd.open(1); err != nil { // what the first stream brings is not each stream's
		return c, err
	}
	before, err := s.memory()
	if err != nil {
		return c, err
	}
	if c.answered, err = crowd.open(streams); err != nil {
		return c, err
	}
	time.Sleep(quiet)
	after, err := s.memory()
	if err != nil {
		return c, err
	}
	c.each(before, after, streams)
	if crowd.bare {
		return c, nil // nothing rotates
	}
	return c, c.rotate(s, crowd, streams+1)
}

// each enters how much more there is for each of the streams.
func (c *cost) each(before, after memory, streams int) {
	each := func(before, after int64) float64 { return float64(after-before) / float64(streams) / 1024 }
	c.resident, c.heap, c.stacks = each(before.Resident, after.Resident), each(before.Heap, after.Heap), each(before.Stacks, after.Stacks)
}

// rotate measures several rotations that reach all streams.
func (c *cost) rotate(s *server, crowd *crowd, streams int) error {
	before, err := s.cpu()
	if err != nil {
		return err
	}
	var took []time.Duration
	for range rotations {
		one, err := rotateOnce(s, crowd, streams)
		if err != nil {
			return err
		}
		took = append(took, one)
	}
	after, err := s.cpu()
	c.rotated, c.cpu = median(took), (after-before)/time.Duration(rotations*streams)
	return err
}

func rotateOnce(s *server, crowd *crowd, streams int) (time.Duration, error) {
	crowd.expect(streams)
	begin := time.Now()
	if err := s.ask("rotate", new(any)); err != nil {
		return 0, err
	}
	took, err := last(crowd.until(begin))
	time.Sleep(quiet)
	return took, err
}

// medianCost takes the median of each figure.
func medianCost(all []cost) cost {
	return cost{
		resident: middle(all, func(c cost) float64 { return c.resident }),
		heap:     middle(all, func(c cost) float64 { return c.heap }),
		stacks:   middle(all, func(c cost) float64 { return c.stacks }),
		answered: middle(all, func(c cost) time.Duration { return c.answered }),
		rotated:  middle(all, func(c cost) time.Duration { return c.rotated }),
		cpu:      middle(all, func(c cost) time.Duration { return c.cpu }),
	}
}

func middle[C any, T float64 | time.Duration](all []C, of func(C) T) T {
	figures := make([]T, len(all))
	for i, c := range all {
		figures[i] = of(c)
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}
