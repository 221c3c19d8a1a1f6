//go:build e2e

package e2e

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// A provider dies or hangs each second, and certificates are due after ten seconds and live for fifty more: on a
// busy machine, few of the providers live long enough to sign. The variable
// COUNTERSIGN_LENGTH says for how long, such as 280s; the default is short.
func TestProviderThatEndsEachSecondCostsNoHandshake(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startAgent(t, agentConfig{ttl: time.Minute, ratio: 0.83})
			w := startWorkload(t, a.socket, "client")
			var probers []*prober
			for _, api := range []apiType{stateOfTheWorld, incremental} {
				e := startEnvoy(t, a.socket, api, "default")
				probers = append(probers, startProber(t, w, e.address(t), envoyID))
			}
			signals := a.signalEachSecond(t, signal, length(t, "COUNTERSIGN_LENGTH", 40*time.Second))
			for _, p := range probers {
				p.awaitHandshakes(t, 20)
				p.report(t)
				p.noFailures(t)
			}
			t.Logf("%d providers %s", signals, name)
		})
	}
}

// signalEachSecond signals each provider process that there is, once a second.
func (a *agent) signalEachSecond(t *testing.T, signal syscall.Signal, during time.Duration) (sent int) {
	t.Helper()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for end := time.Now().Add(during); time.Now().Before(end); <-second.C {
		for _, pid := range children(t, a.PID()) {
			if stat, err := readStat(pid); err == nil && stat.state != "T" && syscall.Kill(pid, signal) == nil {
				sent++
			}
		}
		if a.Ended() != nil {
			t.Fatal("the agent has ended")
		}
	}
	return sent
}

// length returns the duration in a variable.
func length(t *testing.T, variable string, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	mustDo(t, err)
	return d
}

// report says how close the server's certificates came to their ends.
func (p *prober) report(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	least, rotations := time.Hour, 0
	for i, h := range p.handshakes[1:] {
		if before := p.handshakes[i].server; !h.server.Equal(before) {
			rotations++
			least = min(least, before.NotAfter.Sub(h.at))
		}
	}
	if rotations == 0 {
		t.Error("no certificate was renewed")
	}
	t.Logf("%d handshakes, %d failed; %d rotations, the last moment was %s before a certificate's end", p.count, len(p.failures), rotations, least.Round(100*time.Millisecond))
}
