package confine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// reserved is for what a Go program maps at its start and hardly touches; 64 MiB were too
// little (measured).
const reserved = 128 << 20

// Restraint is what holds the processes of one provider.
type Restraint struct {
	limits Limits
	user   *account // nil: the host's own
	groups *cgroups // nil: there are none
	group  string   // what its cgroups are called
	made   atomic.Int64
}

// New prepares the limits that this system can apply and returns the others. The provider
// called name runs as user; empty means the host's user.
func New(name, user string, limits Limits) (*Restraint, Unapplied, error) {
	r := &Restraint{limits: limits, group: name}
	var err error
	if r.user, err = lookupUser(user); err != nil {
		return nil, nil, err
	}
	controllers := limits.controllers()
	if len(controllers) == 0 {
		return r, nil, nil
	}
	var why error
	if r.groups, why = delegatedCgroups(controllers); why != nil {
		return r, r.withoutCgroups(why), nil
	}
	return r, nil, nil
}

// User returns the user that the provider runs as, if it is not the host's.
func (r *Restraint) User() (uid uint32, own bool) {
	if r.user == nil {
		return 0, false
	}
	return r.user.uid, true
}

// Environment returns the variables with the limits and user of the process.
func (r *Restraint) Environment() []string {
	env := r.limits.environment()
	if r.user != nil {
		env = append(env, "HOME="+r.user.home)
	}
	return env
}

// controllers returns the cgroup v2 controllers that the limits need.
func (l Limits) controllers() (names []string) {
	for name, on := range map[string]bool{"memory": l.Memory > 0, "pids": l.Processes > 0, "cpu": l.CPU > 0} {
		if on {
			names = append(names, name)
		}
	}
	return names
}

// withoutCgroups returns the limits that are weaker or missing without cgroups.
func (r *Restraint) withoutCgroups(why error) (missing Unapplied) {
	if r.limits.Memory > 0 {
		missing.add("memory", fmt.Sprintf("limited per process (RLIMIT_DATA), not in total: %v", why))
	}
	if r.limits.Processes > 0 && r.user == nil {
		missing.add("processes", fmt.Sprintf("needs cgroups or a separate user: %v", why))
	}
	if r.limits.CPU > 0 {
		missing.add("cpu", why.Error())
	}
	return missing
}

// Confinement holds one process and its descendants.
type Confinement struct {
	restraint *Restraint
	cgroup    *cgroup // nil: none
}

// Confine sets what applies from the first instruction on.
func (r *Restraint) Confine(attr *syscall.SysProcAttr) (*Confinement, error) {
	if r.user != nil {
		attr.Credential = &syscall.Credential{Uid: r.user.uid, Gid: r.user.gid, Groups: []uint32{}}
	}
	c := &Confinement{restraint: r}
	if r.groups == nil {
		return c, nil
	}
	var err error
	if c.cgroup, err = r.groups.make(fmt.Sprintf("%s-%d", r.group, r.made.Add(1)), r.limits); err != nil {
		return nil, err
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(c.cgroup.dir.Fd())
	return c, nil
}

// Started sets the limits that can only be set from outside, right after the start, and
// returns those that failed.
func (c *Confinement) Started(pid int) (missing Unapplied) {
	l := c.restraint.limits
	for _, limit := range []struct {
		name     string
		resource int
		value    int64
		on       bool
	}{
		{"descriptors", unix.RLIMIT_NOFILE, int64(l.Descriptors), true},
		{"memory", unix.RLIMIT_DATA, l.Memory + reserved, c.cgroup == nil && l.Memory > 0},
		{"processes", unix.RLIMIT_NPROC, int64(l.Processes), c.cgroup == nil && c.restraint.user != nil},
	} {
		if limit.value <= 0 || !limit.on {
			continue
		}
		both := unix.Rlimit{Cur: uint64(limit.value), Max: uint64(limit.value)}
		if err := unix.Prlimit(pid, limit.resource, &both, nil); err != nil && !errors.Is(err, unix.ESRCH) {
			missing.add(limit.name, fmt.Sprintf("prlimit: %v (another user's process needs CAP_SYS_RESOURCE)", err))
		}
	}
	return missing
}

// Ended kills and removes what the process left behind. It may be called twice, and on
// nil.
func (c *Confinement) Ended() {
	if c != nil && c.cgroup != nil {
		c.cgroup.remove()
	}
}
