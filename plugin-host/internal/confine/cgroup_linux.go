package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups is the part of the cgroup v2 tree that this process may manage: that of a
// systemd service with Delegate=yes, or of a container with a writable tree.
// https://docs.kernel.org/admin-guide/cgroup-v2.html
type cgroups struct{ path string }

// prefix of providers' groups; the host's pid follows.
const prefix = "countersign-provider-"

// leafName is the group that the host itself moves to.
const leafName = "countersign-agent"

// delegatedCgroups finds the tree and enables these controllers in it.
func delegatedCgroups(controllers []string) (*cgroups, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	own, ok := unifiedPath(string(text))
	if !ok {
		return nil, errors.New("this system has no cgroup v2")
	}
	mount, err := unifiedMount()
	if err != nil {
		return nil, err
	}
	if filepath.Base(own) == leafName { // an earlier host, or systemd's DelegateSubgroup=, moved us there
		own = filepath.Dir(own)
	}
	path := filepath.Join(mount, own)
	if !delegated(path, own) {
		return nil, fmt.Errorf("cgroup %s is not delegated (systemd: Delegate=yes)", own)
	}
	return prepareCgroups(path, controllers)
}

// delegated reports whether this process may manage the groups below. systemd marks such
// a cgroup; the root that a container sees belongs to the container.
func delegated(path, own string) bool {
	for _, mark := range []string{"user.delegate", "trusted.delegate"} {
		var value [2]byte
		if n, err := unix.Lgetxattr(path, mark, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return own == "/"
}

// unifiedMount returns where the cgroup v2 tree is mounted.
func unifiedMount() (string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ") // proc_pid_mountinfo(5)
		if fields := strings.Fields(before); strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 {
			return fields[4], nil
		}
	}
	return "", errors.New("cgroup v2 is not mounted")
}

// unifiedPath returns the cgroup v2 of /proc/PID/cgroup.
func unifiedPath(text string) (string, bool) {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path, true
		}
	}
	return "", false
}

// prepareCgroups moves this process into a leaf below own and enables the controllers: a
// group that limits others must not have processes itself.
func prepareCgroups(own string, controllers []string) (*cgroups, error) {
	there, err := os.ReadFile(filepath.Join(own, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	for _, needed := range controllers {
		if !slices.Contains(strings.Fields(string(there)), needed) {
			return nil, fmt.Errorf("the cgroup of this process has no %q controller", needed)
		}
	}
	leaf := filepath.Join(own, leafName)
	if err := os.Mkdir(leaf, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := writeControl(leaf, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
		return nil, err
	}
	err = writeControl(own, "cgroup.subtree_control", "+"+strings.Join(controllers, " +"))
	if err != nil {
		return nil, fmt.Errorf("enable cgroup controllers (do other processes share this cgroup?): %w", err)
	}
	g := &cgroups{own}
	g.sweep()
	return g, nil
}

// sweep removes the empty groups of hosts that are gone.
func (g *cgroups) sweep() {
	left, _ := filepath.Glob(filepath.Join(g.path, prefix+"*"))
	for _, path := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), prefix), "-")
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, os.ErrNotExist) {
			_ = os.Remove(path)
		}
	}
}

// cgroup holds one process of a provider and its descendants.
type cgroup struct {
	path string
	dir  *os.File
}

// make makes a group with these limits.
func (g *cgroups) make(name string, l Limits) (*cgroup, error) {
	c := &cgroup{path: filepath.Join(g.path, fmt.Sprintf("%s%d-%s", prefix, os.Getpid(), name))}
	if err := os.Mkdir(c.path, 0o750); err != nil {
		return nil, fmt.Errorf("create a cgroup for the provider: %w", err)
	}
	var err error
	for _, control := range []struct {
		file, value string
		on          bool
	}{
		{"memory.max", strconv.FormatInt(l.Memory, 10), l.Memory > 0},
		{"memory.oom.group", "1", l.Memory > 0}, // kill the whole group, not a part
		{"pids.max", strconv.Itoa(l.Processes), l.Processes > 0},
		{"cpu.max", fmt.Sprintf("%d 100000", int(l.CPU*100_000)), l.CPU > 0},
	} {
		if control.on {
			err = errors.Join(err, writeControl(c.path, control.file, control.value))
		}
	}
	if err == nil {
		c.dir, err = os.Open(c.path)
	}
	if err != nil {
		c.remove()
		return nil, err
	}
	return c, nil
}

// remove kills what is left in the group and removes it.
func (c *cgroup) remove() {
	_ = c.dir.Close() // nil is an error, too
	_ = writeControl(c.path, "cgroup.kill", "1")
	// The group is empty a moment after the kill.
	for wait := time.Millisecond; wait < 4*time.Second; wait *= 2 {
		if err := os.Remove(c.path); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(wait)
	}
}

// writeControl writes an existing control file.
func writeControl(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
