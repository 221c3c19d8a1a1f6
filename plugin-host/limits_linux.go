package pluginhost

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// reserved is what a program in Go maps at its start and hardly touches; 64 MiB of
// it are too few (measured).
const reserved = 128 << 20

// restraint is what holds the processes of one plan.
type restraint struct {
	limits Limits
	user   *account // nil: the host's own
	groups *cgroups // nil: there are none
	group  string   // what its cgroups are called
	made   atomic.Int64
}

// newRestraint finds out what can be applied here, and says what cannot.
func newRestraint(opts Options, e Entry) (*restraint, error) {
	r := &restraint{limits: e.Limits, group: e.Name}
	var err error
	if r.user, err = lookupUser(e.User); err != nil {
		return nil, err
	}
	if r.user != nil {
		opts.Groups.addUser(r.user.uid)
	}
	var missing unapplied
	if controllers := e.Limits.controllers(); len(controllers) > 0 {
		var why error
		if r.groups, why = delegatedCgroups(controllers); why != nil {
			missing = r.withoutCgroups(why)
		}
	}
	if len(missing) > 0 {
		opts.Log.Warn("limits of a provider cannot be applied here", "provider", e.Name, "limits", missing.String())
	}
	return r, nil
}

// environment is what the process is told of all this.
func (r *restraint) environment() []string {
	env := r.limits.environment()
	if r.user != nil {
		env = append(env, "HOME="+r.user.home)
	}
	return env
}

// controllers are those of cgroup v2 that the limits need.
func (l Limits) controllers() (names []string) {
	for name, on := range map[string]bool{"memory": l.Memory > 0, "pids": l.Processes > 0, "cpu": l.CPU > 0} {
		if on {
			names = append(names, name)
		}
	}
	return names
}

// withoutCgroups names what is weaker or missing without them.
func (r *restraint) withoutCgroups(why error) (missing unapplied) {
	if r.limits.Memory > 0 {
		missing.add("memory", fmt.Sprintf("each process has its own limit (RLIMIT_DATA), not all together: %v", why))
	}
	if r.limits.Processes > 0 && r.user == nil {
		missing.add("processes", fmt.Sprintf("without a user of its own there is none: %v", why))
	}
	if r.limits.CPU > 0 {
		missing.add("cpu", why.Error())
	}
	return missing
}

// confinement is what holds one process and all that it starts.
type confinement struct {
	restraint *restraint
	cgroup    *cgroup // nil: none
}

// confine sets what holds from the first instruction on.
func (r *restraint) confine(attr *syscall.SysProcAttr) (*confinement, error) {
	if r.user != nil {
		attr.Credential = &syscall.Credential{Uid: r.user.uid, Gid: r.user.gid, Groups: []uint32{}}
	}
	c := &confinement{restraint: r}
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

// started sets what can be set from outside only, a moment after the start, and
// returns what could not be.
func (c *confinement) started(pid int) (missing unapplied) {
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

// ended ends and removes what the process left behind. It may be called twice.
func (c *confinement) ended() {
	if c != nil && c.cgroup != nil {
		c.cgroup.remove()
	}
}
