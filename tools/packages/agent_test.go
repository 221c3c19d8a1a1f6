package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const patience = 2 * time.Minute

// agent is one that runs in a root.
type agent struct {
	cmd   *exec.Cmd
	mu    sync.Mutex
	log   []string
	grown chan struct{}
	seen  int // lines that await has passed
}

func (r root) startAgent(t *testing.T) *agent {
	t.Helper()
	a := &agent{grown: make(chan struct{}, 1)}
	a.cmd = r.command(t, "countersign", "/usr/bin/countersign", "agent", "--config", "/etc/countersign/countersign.yaml")
	lines, err := a.cmd.StderrPipe()
	check(t, err)
	check(t, a.cmd.Start())
	go a.follow(lines)
	return a
}

func (a *agent) follow(lines io.Reader) {
	for scanner := bufio.NewScanner(lines); scanner.Scan(); {
		a.mu.Lock()
		a.log = append(a.log, scanner.Text())
		a.mu.Unlock()
		select {
		case a.grown <- struct{}{}:
		default:
		}
	}
}

// await waits for a line after those that it has already found.
func (a *agent) await(t *testing.T, pattern string) {
	t.Helper()
	wanted, deadline := regexp.MustCompile(pattern), time.After(patience)
	for {
		a.mu.Lock()
		for ; a.seen < len(a.log); a.seen++ {
			if wanted.MatchString(a.log[a.seen]) {
				a.seen++
				a.mu.Unlock()
				return
			}
		}
		log := strings.Join(a.log, "\n")
		a.mu.Unlock()
		select {
		case <-a.grown:
		case <-deadline:
			t.Fatalf("the agent did not log %q:\n%s", pattern, log)
		}
	}
}

// crashProviders kills what the agent has started.
func (a *agent) crashProviders(t *testing.T) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", a.cmd.Process.Pid))
	check(t, err)
	killed := 0
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		for _, child := range strings.Fields(string(text)) {
			if pid, _ := strconv.Atoi(child); pid > 1 && syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
	}
	if killed == 0 {
		t.Fatal("the agent has no providers")
	}
}

func (a *agent) stop(t *testing.T) {
	t.Helper()
	check(t, a.cmd.Process.Signal(syscall.SIGTERM))
	if err := a.cmd.Wait(); err != nil {
		t.Fatalf("the agent ended with %v:\n%s", err, strings.Join(a.log, "\n"))
	}
}

// status returns what /status says.
func (r root) status(t *testing.T) string {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.path("run/countersign/status"))
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	answer, err := client.Get("http://agent/status")
	check(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	check(t, err)
	return string(text)
}
