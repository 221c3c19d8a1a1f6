package memory

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapProgram drops the pages of the program's file, its code and constants, from this process. They
// stay in the page cache, and those in use are mapped again on access (madvise(2), MADV_DONTNEED). On
// an error they stay mapped.
func unmapProgram() {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	about, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer about.Close()
	var m mapping
	for lines := bufio.NewScanner(about); lines.Scan(); {
		if next, ok := mappingOf(lines.Text()); ok {
			m.unmap(path)
			m = next
		} else {
			m.modified = m.modified || isModified(lines.Text())
		}
	}
	m.unmap(path)
}

// mapping is an entry of /proc/self/smaps (proc_pid_smaps(5)).
type mapping struct {
	start, end        uintptr
	permissions, file string
	modified          bool // it has pages that are not the file's
}

// unmap does nothing to mappings of other files, to those that may be written, and to those that
// were: a loader applies relocations before it takes away the permission, and a debugger sets
// breakpoints. What they wrote is not in the file.
func (m mapping) unmap(path string) {
	if m.file == path && !m.modified && (m.permissions == "r--p" || m.permissions == "r-xp") {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

// mappingOf reads the first line of an entry: addresses, permissions, offset, device, inode, path.
func mappingOf(line string) (m mapping, ok bool) {
	addresses, rest, _ := strings.Cut(line, " ")
	from, to, ok := strings.Cut(addresses, "-")
	start, startErr := strconv.ParseUint(from, 16, 64)
	end, endErr := strconv.ParseUint(to, 16, 64)
	fields := strings.SplitN(rest, " ", 5)
	if !ok || startErr != nil || endErr != nil || len(fields) < 5 {
		return mapping{}, false
	}
	return mapping{start: uintptr(start), end: uintptr(end), permissions: fields[0], file: strings.TrimLeft(fields[4], " ")}, true
}

// isModified reports whether a line counts pages that are in memory or in swap and not in the file.
func isModified(line string) bool {
	name, value, _ := strings.Cut(line, ":")
	return (name == "Anonymous" || name == "Swap") && strings.TrimSpace(value) != "0 kB"
}
