package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/internal/test/figures"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

const (
	respawnRuns = 5
	// Four crashes: the fifth would open the circuit.
	killsInARun = 4
)

// respawn measures from fork to configured, after a kill and its backoff.
func (b *bench) respawn() error {
	var times []time.Duration
	for range respawnRuns {
		took, err := b.killed()
		if err != nil {
			return err
		}
		times = append(times, took...)
	}
	row("respawn of a killed provider, from fork to configured", ms(median(times)))
	return nil
}

func (b *bench) killed() ([]time.Duration, error) {
	states := make(chan pluginhost.Status, 100)
	p, err := pluginhost.Open(context.Background(), pluginhost.Options{
		Dirs: []string{b.root}, Dev: true, OnState: func(s pluginhost.Status) { states <- s },
	}, pluginhost.Entry{Name: "file", Settings: map[string]any{"dir": b.ca}})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var times []time.Duration
	var started time.Time
	for s := range states {
		switch s.State {
		case pluginhost.Starting:
			started = s.Since
		case pluginhost.Ready:
			if s.Generation > 1 {
				times = append(times, s.Since.Sub(started))
			}
			if len(times) == killsInARun {
				return times, nil
			}
			if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
				return nil, err
			}
		}
	}
	return times, nil
}

// settle is how long an agent is left alone before its memory is read.
const settle = 3 * time.Second

// memory reads what the idle agent and its provider hold.
func (b *bench) memory() error {
	cmd, err := b.shippedAgent()
	if err != nil {
		return err
	}
	defer end(cmd)
	if err := fetch(filepath.Join(cmd.Dir, "s")); err != nil {
		return err
	}
	time.Sleep(settle)
	child, err := childOf(cmd.Process.Pid)
	if err != nil {
		return err
	}
	for name, pid := range map[string]int{"resident memory of the idle agent": cmd.Process.Pid, "resident memory of its file provider": child} {
		kib, err := figures.Resident(pid)
		if err != nil {
			return err
		}
		row(name, fmt.Sprintf("%.1f MiB", float64(kib)/1024))
	}
	return nil
}

func childOf(pid int) (int, error) {
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, err
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			return strconv.Atoi(fields[0])
		}
	}
	return 0, fmt.Errorf("process %d has no child", pid)
}
