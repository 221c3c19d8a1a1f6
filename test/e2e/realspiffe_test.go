//go:build e2e

package e2e

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// svidUpdate is what a workload has from its SPIFFE library, in hex SHA-256 of the DER.
type svidUpdate struct {
	ID     string   `json:"id"`
	Leaf   string   `json:"leaf"`
	Issuer string   `json:"issuer"`
	Roots  []string `json:"roots"`
	Code   int      `json:"code"` // of a call without the security header
}

// spiffeWorkload is a program with the SPIFFE library of some language.
type spiffeWorkload struct {
	updates chan svidUpdate
	last    svidUpdate
}

// startSPIFFEWorkload starts a program that prints updates as lines of JSON. It is killed when the
// test ends.
func startSPIFFEWorkload(t *testing.T, path string, args ...string) *spiffeWorkload {
	t.Helper()
	log := &logtest.Log{}
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Stderr, cmd.WaitDelay = []string{}, log, 5*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	mustDo(t, err)
	mustDo(t, cmd.Start())
	w := &spiffeWorkload{updates: make(chan svidUpdate, 1000)}
	read := make(chan struct{})
	go func() { defer close(read); w.follow(out) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s says:\n%s", path, log)
		}
	})
	return w
}

func (w *spiffeWorkload) follow(out io.Reader) {
	defer close(w.updates)
	for decoder := json.NewDecoder(out); ; {
		var u svidUpdate
		if decoder.Decode(&u) != nil {
			return
		}
		w.updates <- u
	}
}

// await reads updates until done.
func (w *spiffeWorkload) await(t *testing.T, what string, done func(svidUpdate) bool) {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case u, ok := <-w.updates:
			if !ok {
				t.Fatalf("the workload ended before it had %s", what)
			}
			if w.last = u; done(u) {
				return
			}
		case <-deadline:
			t.Fatalf("waited %s in vain for the workload to have %s; it has %+v", patience, what, w.last)
		}
	}
}

func (w *spiffeWorkload) awaitAnother(t *testing.T) {
	t.Helper()
	held := w.last.Leaf
	w.await(t, "another certificate", func(u svidUpdate) bool { return u.Leaf != held })
}

// On the one socket that SPIRE's agent has.
func TestRealSPIFFELibrariesFollowTheAgent(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"python": {programs.Foreign(t, "COUNTERSIGN_SPIFFE_PYTHON"), "-I", programs.File(t, "test/e2e/spiffe/client.py")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			followsTheAgent(t, command)
		})
	}
}

func followsTheAgent(t *testing.T, command []string) {
	a := startAgent(t, agentConfig{oneSocket: true})
	args := append(slices.Clone(command[1:]), "unix://"+a.socket)
	startSPIFFEWorkload(t, command[0], append(args, "refused")...).
		await(t, "its call without the security header refused", func(u svidUpdate) bool { return u.Code == 3 })
	w := startSPIFFEWorkload(t, command[0], args...)
	w.await(t, "its SVID", func(u svidUpdate) bool { return u.ID == envoyID && len(u.Roots) == 1 })
	for range 5 {
		w.awaitAnother(t)
	}
	a.stop(t, syscall.SIGKILL)
	a.start(t)
	w.awaitAnother(t)
	root := pki.Fingerprint(writeCA(t, a.ca, "second root"))
	w.await(t, "the second root, and a certificate of it", func(u svidUpdate) bool {
		return slices.Contains(u.Roots, root) && strings.Contains(u.Issuer, "second root")
	})
}
