package proxy

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// listens reads off /proc whether a process has a listening socket: an Envoy that a
// next epoch has taken over from has none.
func listens(pid int) bool {
	root := fmt.Sprintf("/proc/%d/", pid)
	sockets := map[string]bool{}
	links, err := filepath.Glob(root + "fd/*")
	if err != nil || len(links) == 0 {
		return true // not ours to read
	}
	for _, link := range links {
		target, _ := os.Readlink(link) // it may be closed by now
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			sockets[strings.TrimSuffix(inode, "]")] = true
		}
	}
	// State 0A of proc_net_tcp(5); the flag __SO_ACCEPTCON of a unix socket.
	return anyOf(root+"net/tcp", 3, "0A", 9, sockets) || anyOf(root+"net/tcp6", 3, "0A", 9, sockets) ||
		anyOf(root+"net/unix", 3, "00010000", 6, sockets)
}

// anyOf tells whether a table has a line with the value, of one of the sockets.
func anyOf(table string, column int, value string, inode int, sockets map[string]bool) bool {
	file, err := os.Open(table)
	if err != nil {
		return false // no IPv6, for one
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > inode && fields[column] == value && sockets[fields[inode]] {
			return true
		}
	}
	return false
}
