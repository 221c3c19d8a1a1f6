//go:build systemd

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// machine is a Debian that systemd has booted, in a container. What is written on it ends with it.
type machine struct {
	leader string // the process number of its systemd
	units  int    // that run in the background
}

// boot starts a machine of the root that scripts/get-machine made.
func boot(t *testing.T) *machine {
	t.Helper()
	nspawn, dir := foreign(t, "COUNTERSIGN_NSPAWN"), foreign(t, "COUNTERSIGN_MACHINE")
	cmd := exec.Command(nspawn, "--quiet", "--boot", "--register=no", "--keep-unit", "--private-network", "--link-journal=no",
		"--volatile=overlay", "--console=pipe", "--machine=countersign", "--directory="+dir)
	var console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &console
	check(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	m := &machine{}
	m.eventually(t, "systemd has begun", func() error {
		select {
		case <-ended:
			t.Fatalf("the container ended:\n%s", console.String())
		default:
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
		if m.leader = strings.TrimSpace(string(text)); m.leader == "" {
			return fmt.Errorf("no child yet: %v", err)
		}
		_, err = m.try("systemctl", "show", "--property=SystemState", "--value")
		return err
	})
	m.eventually(t, "the machine is up", func() error {
		said, _ := m.try("systemctl", "is-system-running", "--wait")
		if state := strings.TrimSpace(said); state != "running" && state != "degraded" {
			return fmt.Errorf("the system is %q", state)
		}
		return nil
	})
	return m
}

// try runs a command on the machine, as root.
func (m *machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target", m.leader, "--all", "--", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, args...)...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		return string(said), fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, said)
	}
	return string(said), nil
}

func (m *machine) run(t *testing.T, args ...string) string {
	t.Helper()
	said, err := m.try(args...)
	check(t, err)
	return said
}

// eventually polls for what sends no event.
func (m *machine) eventually(t *testing.T, what string, done func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			journal, _ := m.try("journalctl", "--no-pager", "--lines=60", "--output=cat")
			t.Fatalf("%s: %v\n%s", what, err, journal)
		}
	}
}

// path is a file of the machine, as it is reached from here.
func (m *machine) path(name string) string { return filepath.Join("/proc", m.leader, "root", name) }

func (m *machine) write(t *testing.T, name, text string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(m.path(name)), 0o755))
	check(t, os.WriteFile(m.path(name), []byte(text), 0o644))
}

func (m *machine) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(m.path(name))
	check(t, err)
	return string(text)
}

func (m *machine) exists(name string) bool {
	_, err := os.Lstat(m.path(name))
	return err == nil
}

// install installs a package of this machine, and returns what that prints.
func (m *machine) install(t *testing.T, deb string) string {
	t.Helper()
	text, err := os.ReadFile(deb)
	check(t, err)
	m.write(t, "/root/countersign.deb", string(text))
	return m.run(t, "env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "dpkg", "--install", "/root/countersign.deb")
}

// now marks the end of the journal.
func (m *machine) now(t *testing.T) (cursor string) {
	t.Helper()
	said := m.run(t, "journalctl", "--no-pager", "--lines=0", "--show-cursor")
	_, cursor, _ = strings.Cut(strings.TrimSpace(said), "-- cursor: ")
	return cursor
}

// logs waits until the agent's unit has logged each of the texts since a moment.
func (m *machine) logs(t *testing.T, since string, texts ...string) {
	t.Helper()
	m.eventually(t, "the journal", func() error {
		journal, err := m.try("journalctl", "--no-pager", "--output=cat", "--unit=countersign", "--after-cursor="+since)
		for _, text := range texts {
			if !strings.Contains(journal, text) {
				return fmt.Errorf("no %q in\n%s\n%v", text, journal, err)
			}
		}
		return err
	})
}
