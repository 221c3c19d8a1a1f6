package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/catalog"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// beProgram is what the test's binary does as countersign-discovery: it prints its name,
// and at SIGTERM ends with 7.
func beProgram() {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	fmt.Println(os.Getpid(), os.Args)
	<-term
	os.Exit(7)
}

func TestDiscoveryReplacesProcessAndGetsSignals(t *testing.T) {
	proctest.NeedsProcess(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), catalog.Discovery.Name)
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	pin := sha256.Sum256(text)
	cmd := exec.CommandContext(t.Context(), self, asAgent, "discovery", "--provider-dir", filepath.Dir(path), "--sha256", hex.EncodeToString(pin[:]), "serve", "--lock=x")
	cmd.Env, cmd.Stderr = operatorsEnviron(), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if want := fmt.Sprintln(cmd.Process.Pid, []string{path, "serve", "--lock=x"}); line != want {
		t.Errorf("it prints %q, want %q", line, want)
	}
	if runs, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)); os.Geteuid() == 0 && !strings.HasPrefix(runs, "/memfd:") {
		t.Errorf("what runs is %s (%v), which is not the copy that was verified", runs, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
		t.Errorf("it ended with %v, want exit code 7", err)
	}
}
