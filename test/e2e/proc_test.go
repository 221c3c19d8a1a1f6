package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// procStat is the part of /proc/PID/stat (proc(5)) that tests look at.
type procStat struct {
	pid, parent int
	state       string
}

func readStat(pid int) (procStat, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	// The second field is the program's name in parentheses, which may hold both.
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	parent, err := strconv.Atoi(fields[1])
	return procStat{pid: pid, parent: parent, state: fields[0]}, err
}

// children returns the pids of a process's children, zombies aside.
func children(t *testing.T, parent int) []int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if stat, err := readStat(pid); err == nil && stat.parent == parent && stat.state != "Z" {
			found = append(found, pid)
		}
	}
	return found
}
