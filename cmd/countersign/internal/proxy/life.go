package proxy

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// start describes a process to start.
type start struct {
	argv, env []string
}

// child is a process. Its methods may be called even after it has exited.
type child interface {
	PID() int
	// Signal signals the process itself.
	Signal(os.Signal) error
	// Kill kills the whole process group.
	Kill()
	// Ended is closed when the process is reaped and its group is empty.
	Ended() <-chan struct{}
	// Exit returns the exit status; call it after Ended.
	Exit() exit
	// Listens reports whether it has a listening socket; true if unknown.
	Listens() bool
}

// exit is the exit status of a process.
type exit struct {
	code   int            // as in a shell: 128 plus the number of the signal that ended it
	signal syscall.Signal // 0 for none
}

func (e exit) String() string {
	if e.signal != 0 {
		return fmt.Sprintf("killed by signal %d (%s)", int(e.signal), e.signal)
	}
	return fmt.Sprintf("exit code %d", e.code)
}

// news is the state that a proxy has read at its start or got by a reload.
type news struct {
	digest   string // of the watched folders
	locality string
}

// life is one process, from its start until it is reaped.
type life struct {
	child
	epoch     int
	base      *baseID // nil without hot restart
	since     time.Time
	knows     news
	dismissed bool        // we sent it SIGTERM
	deadline  *time.Timer // kills it some time after dismiss
}

// end returns nil, which blocks forever, if there is no life.
func (l *life) end() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.Ended()
}

// dismiss sends SIGTERM, and SIGKILL if it does not exit in time.
func (l *life) dismiss(patience time.Duration) {
	if l == nil || l.dismissed {
		return
	}
	l.dismissed = true
	_ = l.Signal(syscall.SIGTERM) // it may have exited already
	l.deadline = time.AfterFunc(patience, l.Kill)
}

// orderly returns the exit code of a dismissed life: to die of that signal is a success.
func (l *life) orderly() int {
	if e := l.Exit(); e.signal != syscall.SIGTERM {
		return e.code
	}
	return 0
}
