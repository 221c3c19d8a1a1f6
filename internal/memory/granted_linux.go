package memory

import (
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// granted returns the memory that the cgroups of this process allow, or 0 if they set no limit.
func granted() int64 {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := int64(math.MaxInt64)
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) != 3:
		case fields[0] == "0": // version 2
			least = min(least, leastOf("/sys/fs/cgroup", fields[2], "memory.max"))
		case fields[1] == "memory":
			least = min(least, leastOf("/sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes"))
		}
	}
	if least > 1<<50 { // version 1 has a huge number for none
		return 0
	}
	return least
}

// leastOf returns the least limit of a group and those that it is in. In a container, the mount
// shows its own group alone.
func leastOf(mount, group, file string) int64 {
	least := int64(math.MaxInt64)
	for {
		text, err := os.ReadFile(path.Join(mount, group, file))
		if err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				least = min(least, n)
			}
		}
		if group == "/" || group == "." || group == "" {
			return least
		}
		group = path.Dir(group)
	}
}
