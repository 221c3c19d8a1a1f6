package memory

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
)

// fileBacked returns the resident pages of files (proc_pid_statm(5), the third number).
func fileBacked(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(string(bytes.Fields(text)[2]))
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

func TestReturnUnmapsTheProgramWhichGoesOn(t *testing.T) {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("/proc/self/smaps")
	if err != nil || !strings.Contains(string(program), path) {
		t.Skipf("the kernel does not describe the mappings: %v", err)
	}
	before := fileBacked(t)
	Return()
	if after := fileBacked(t); after >= before {
		t.Errorf("%d pages of files are mapped, %d before", after, before)
	}
}

func TestMappingThatDiffersFromItsFileIsKept(t *testing.T) {
	m, ok := mappingOf("00400000-01062000 r-xp 00000000 fe:01 262170                   /opt/a program (deleted)")
	if !ok || m.start != 0x400000 || m.end != 0x1062000 || m.permissions != "r-xp" || m.file != "/opt/a program (deleted)" {
		t.Errorf("got %+v, %v", m, ok)
	}
	if m, _ = mappingOf("7f00-7f01 rw-p 00000000 00:00 0 "); m.file != "" {
		t.Errorf("got %+v", m)
	}
	for line, modified := range map[string]bool{
		"Anonymous:             0 kB": false, "Anonymous:             4 kB": true, "Swap:                  4 kB": true, "Swap:   0 kB": false,
		"SwapPss:               4 kB": false, "Rss:                   4 kB": false, "VmFlags: rd ex mr mw me": false,
	} {
		if _, ok := mappingOf(line); ok || isModified(line) != modified {
			t.Errorf("%q: a mapping %v, modified %v", line, ok, isModified(line))
		}
	}
}
