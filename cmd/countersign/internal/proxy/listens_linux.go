package proxy

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// listens looks in /proc for a listening socket of the process. An Envoy has none left when
// the next epoch has taken over.
func listens(pid int) bool {
	root := fmt.Sprintf("/proc/%d/", pid)
	sockets := map[string]bool{}
	links, err := filepath.Glob(root + "fd/*")
	if err != nil || len(links) == 0 {
		return true // not ours to read
	}
	for _, link := range links {
		target, _ := os.Readlink(link) // it may be closed already
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			sockets[strings.TrimSuffix(inode, "]")] = true
		}
	}
	// State 0A of proc_net_tcp(5); the flag __SO_ACCEPTCON of a unix socket.
	return anyOf(root+"net/tcp", 3, "0A", 9, sockets) || anyOf(root+"net/tcp6", 3, "0A", 9, sockets) ||
		anyOf(root+"net/unix", 3, "00010000", 6, sockets)
}

// anyOf reports whether a table has a line with the value for one of the sockets.
func anyOf(table string, column int, value string, inode int, sockets map[string]bool) bool {
	file, err := os.Open(table)
	if err != nil {
		return false // for example without IPv6
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
