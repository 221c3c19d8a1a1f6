package bench

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// crowds measures how both agents serve many streams, each on its own connection. They take turns.
func crowds(both []contender) error {
	if err := raiseFiles(); err != nil {
		return err
	}
	for _, n := range []int{1000, agentStreams} {
		var costs [2][]agentCost
		for range agentRuns {
			for i := range both {
				cost, err := both[i].crowded(n)
				if err != nil {
					return fmt.Errorf("%d streams at %s: %w", n, both[i].path, err)
				}
				costs[i] = append(costs[i], cost)
			}
		}
		printCrowds(n, costs[0], costs[1])
	}
	return nil
}

func printCrowds(n int, theirs, ours []agentCost) {
	beside := func(figure, unit string, of func(agentCost) float64) {
		besides(figure, unit, middle(theirs, of), middle(ours, of))
	}
	beside(fmt.Sprintf("%d streams, each on its own connection, answered", n), "ms", func(c agentCost) float64 { return milliseconds(c.opened) })
	beside("… CPU for each", "µs", func(c agentCost) float64 { return 1000 * milliseconds(c.answer) })
	beside("… resident memory for each", "KiB", func(c agentCost) float64 { return c.connected })
	beside("… of that anonymous", "KiB", func(c agentCost) float64 { return c.anonymous })
	beside("… a new certificate, from the first of them to 99 of 100", "ms", func(c agentCost) float64 { return milliseconds(c.most) })
	beside("… CPU for each push and its acknowledgement", "µs", func(c agentCost) float64 { return 1000 * milliseconds(c.push) })
}

// crowded makes one run with an agent of its own, whose certificate rotates after crowdRotation.
func (c contender) crowded(n int) (agentCost, error) {
	c.env = append(slices.Clip(c.env), "SECRET_TTL="+(2*crowdRotation).String())
	cmd, err := c.serving()
	if err != nil {
		return agentCost{}, err
	}
	defer end(cmd)
	return crowdedBy(cmd.Process.Pid, filepath.Join(c.dir, c.socket), n)
}

const crowdRotation = 15 * time.Second
