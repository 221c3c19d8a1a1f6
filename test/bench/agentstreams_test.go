package bench

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/internal/test/figures"
)

const (
	agentStreams = 5000
	agentRuns    = 3
	// The certificate's lifetime leaves time to open all streams before the first rotation.
	agentTTL = "60s"
)

// agentCost is what a run at the shipped agent came to. Memory is that of one stream, in KiB.
type agentCost struct {
	connected, rotated float64       // resident
	anonymous          float64       // of connected: without pages of the program's file, which streams share
	opened             time.Duration // until all streams were answered
	answer             time.Duration // the agent's CPU for a stream answered
	push               time.Duration // the agent's CPU for a push to one stream
	most, reached      time.Duration // from the first stream that a rotation reached to 99 of 100, and to the last
}

// streamsOfAgent measures streams where users have them: at the shipped agent, with its
// engine, its limits and its provider.
func (b *bench) streamsOfAgent() error {
	if err := raiseFiles(); err != nil {
		return err
	}
	var costs []agentCost
	for range agentRuns {
		c, err := b.crowdedAgent()
		if err != nil {
			return fmt.Errorf("streams at the agent: %w", err)
		}
		costs = append(costs, c)
	}
	fmt.Printf("\n| The shipped agent with %d streams, each on its own connection, client on the same cores | measured |\n|---|---|\n", agentStreams)
	kib := func(of func(agentCost) float64) string { return fmt.Sprintf("%.1f KiB", middle(costs, of)) }
	micro := func(of func(agentCost) time.Duration) string {
		return fmt.Sprintf("%.1f µs", float64(middle(costs, of))/float64(time.Microsecond))
	}
	row("resident memory for a connected stream", kib(func(c agentCost) float64 { return c.connected }))
	row("… of that anonymous", kib(func(c agentCost) float64 { return c.anonymous }))
	row("… after a rotation", kib(func(c agentCost) float64 { return c.rotated }))
	row("agent's CPU for a stream, from connecting to the acknowledged answer", micro(func(c agentCost) time.Duration { return c.answer }))
	row("agent's CPU for a push and its acknowledgement", micro(func(c agentCost) time.Duration { return c.push }))
	row("rotation, from the first stream to the last", fmt.Sprintf("%.2f s", middle(costs, func(c agentCost) time.Duration { return c.reached }).Seconds()))
	return nil
}

// crowdedAgent makes one run with an agent of its own.
func (b *bench) crowdedAgent() (c agentCost, err error) {
	cmd, err := b.shippedAgent("--ttl", agentTTL)
	if err != nil {
		return c, err
	}
	defer end(cmd)
	socket := filepath.Join(cmd.Dir, "s")
	if err := fetch(socket); err != nil {
		return c, err
	}
	return crowdedBy(cmd.Process.Pid, socket, agentStreams)
}

// crowdedBy opens n streams at an agent that has its secrets, and waits for one rotation.
func crowdedBy(pid int, socket string, n int) (c agentCost, err error) {
	crowd, err := newCrowd(socket, crowding{streams: n})
	if err != nil {
		return c, err
	}
	defer crowd.close()
	if _, err := crowd.open(1); err != nil { // what the first stream brings is not each stream's
		return c, err
	}
	if err := c.connect(pid, crowd, n); err != nil {
		return c, err
	}
	return c, c.rotation(pid, crowd, n)
}

// connect opens n streams.
func (c *agentCost) connect(pid int, crowd *crowd, n int) error {
	time.Sleep(settle)
	used, before, err := figures.Usage(pid)
	if err != nil {
		return err
	}
	own, err := figures.Anonymous(pid)
	if err != nil {
		return err
	}
	if c.opened, err = crowd.open(n); err != nil {
		return err
	}
	crowd.expect(n + 1) // the rotation's
	time.Sleep(settle)
	cpu, after, usageErr := figures.Usage(pid)
	more, err := figures.Anonymous(pid)
	c.connected, c.anonymous, c.answer = (after-before)/float64(n), float64(more-own)/float64(n), (cpu-used)/time.Duration(n)
	c.rotated = -before
	return errors.Join(usageErr, err)
}

// rotation waits for the next certificate on all streams.
func (c *agentCost) rotation(pid int, crowd *crowd, n int) error {
	used, _, err := figures.Usage(pid)
	if err != nil {
		return err
	}
	took, err := crowd.until(time.Now())
	if err != nil {
		return err
	}
	time.Sleep(settle)
	cpu, after, err := figures.Usage(pid)
	c.rotated = (c.rotated + after) / float64(n)
	c.push, c.most, c.reached = (cpu-used)/time.Duration(len(took)), took[len(took)*99/100]-took[0], took[len(took)-1]-took[0]
	return err
}

// shippedAgent starts bin/countersign with the file provider, as the README has it.
func (b *bench) shippedAgent(flags ...string) (*exec.Cmd, error) {
	pin, err := sha256Of(filepath.Join(b.root, "countersign-provider-file"))
	if err != nil {
		return nil, err
	}
	args := []string{"agent", "--socket", "s", "--namespace", "default", "--service-account", "web",
		"--set", "providers.file.sha256=" + pin, "--set", "providers.file.settings.dir=" + b.ca, "--log-level", "error"}
	cmd, err := b.command(filepath.Join(b.root, "countersign"), append(args, flags...)...)
	if err != nil {
		return nil, err
	}
	return cmd, cmd.Start()
}
