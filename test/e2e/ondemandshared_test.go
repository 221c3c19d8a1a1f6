//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// store is a folder that agents share, with its key.
type store struct{ folder, key string }

func newStore(t *testing.T) store {
	t.Helper()
	dir := proctest.Folder(t)
	s := store{filepath.Join(dir, "shared"), filepath.Join(dir, "key")}
	mustDo(t, os.Mkdir(s.folder, 0o700))
	mustDo(t, os.WriteFile(s.key, []byte(rand.Text()+rand.Text()+rand.Text()+"\n"), 0o600))
	return s
}

// share has an agent that is not started use the store.
func (s store) share(t *testing.T, a *agent) {
	t.Helper()
	a.edit(t, func(c map[string]any) { c["store"] = map[string]any{"folder": s.folder, "key_file": s.key} })
}

// away moves the folder away, as a mount that is away does, or back.
func (s store) away(t *testing.T, away bool) {
	t.Helper()
	from, to := s.folder, s.folder+".away"
	if !away {
		from, to = to, from
	}
	mustDo(t, os.Rename(from, to))
}

// startSharing starts an agent with a rule for *.shop.example.org, one of several with the store and the CA.
func startSharing(t *testing.T, s store, ca string) (a *agent, address string) {
	t.Helper()
	a = prepareAgent(t, agentConfig{selfSigned: true, first: ca, secrets: []map[string]any{
		{"name": "shops", "match": "*.shop.example.org", "ttl": "1h", "on_demand": map[string]any{"wait": handshakeWait.String()}},
	}})
	s.share(t, a)
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	_, address = startOnDemandEnvoy(t, a.socket)
	return a, address
}

// Two agents serve the same names at the same time, and order each once.
func TestAgentsShareCertificatesOnDemand(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	s, ca := newStore(t), filepath.Join(proctest.Folder(t), "ca")
	first, one := startSharing(t, s, ca)
	mustShakeHands(t, one, "first.shop.example.org")
	second, two := startSharing(t, s, ca)

	const names = 60
	var all sync.WaitGroup
	serials := [2][names]string{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range names {
		for side, address := range []string{one, two} {
			all.Go(func() {
				certificate, err := shakeHands(ctx, address, fmt.Sprintf("n%d.shop.example.org", i))
				if err != nil {
					t.Errorf("n%d at agent %d: %v", i, side, err)
					return
				}
				serials[side][i] = certificate.SerialNumber.String()
			})
		}
	}
	all.Wait()
	if serials[0] != serials[1] {
		t.Error("the agents serve different certificates")
	}
	if got := first.rule(t, "shops").Orders + second.rule(t, "shops").Orders; got != names+1 {
		t.Errorf("%d orders for %d names", got, names+1)
	}

	s.away(t, true)
	for _, address := range []string{one, two} {
		mustShakeHands(t, address, "n1.shop.example.org")
	}
	mustBeRefusedIn(t, two, "late.shop.example.org", patience)
	s.away(t, false)
	poll(t, "a new name once the folder is back", func() bool {
		_, err := shakeHands(t.Context(), two, "late.shop.example.org")
		return err == nil
	})
	late := mustShakeHands(t, one, "late.shop.example.org").SerialNumber.String()

	first.stop(t, syscall.SIGKILL)
	first.start(t)
	_, again := startOnDemandEnvoy(t, first.socket)
	if got := mustShakeHands(t, again, "late.shop.example.org").SerialNumber.String(); got != late {
		t.Error("after a restart, an agent has another certificate")
	}
	if got := first.rule(t, "shops").Orders; got != 0 {
		t.Errorf("after a restart, an agent made %d orders", got)
	}
}

// An agent is killed in the middle of an order, which the other one finishes.
func TestRealACMEOrderIsFinishedByAnotherAgent(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	p, s, shared := startPebble(t), newStore(t), filepath.Join(proctest.Folder(t), "acme")
	first, _ := startOnDemandACME(t, p, s, shared)
	second, _ := startOnDemandACME(t, p, s, shared)
	_, one := startOnDemandEnvoy(t, first.socket)
	_, two := startOnDemandEnvoy(t, second.socket)
	mustShakeHands(t, one, "a1.shop.example.org")

	handshakes := [2]chan error{make(chan error, 1), make(chan error, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for side, address := range []string{one, two} {
		go func() {
			_, err := shakeHands(ctx, address, "a2.shop.example.org")
			handshakes[side] <- err
		}()
		p.Log.Await(t, patience, "the order of the first agent", func(text string) bool { return strings.Count(text, ordered) == 2 })
	}
	p.Log.Await(t, patience, "the second certificate", func(text string) bool { return strings.Count(text, issued) == 2 })
	first.stop(t, syscall.SIGKILL)
	began := time.Now()
	if err := <-handshakes[1]; err != nil {
		t.Error(err)
	}
	t.Logf("the other agent finished after %s", time.Since(began))
	if orders := p.count(ordered); orders != 2 || p.count(issued) != 2 {
		t.Errorf("%d orders and %d certificates for two names", orders, p.count(issued))
	}
	if got := second.rule(t, "shops"); got.Issued != 1 || got.Held != 2 {
		t.Errorf("the other agent ordered %d names and has %d, want one and both", got.Issued, got.Held)
	}
}
