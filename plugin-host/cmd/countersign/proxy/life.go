package proxy

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// start is what a process is made from.
type start struct {
	argv, env []string
}

// child is a process. Its methods may be called after its end, too.
type child interface {
	PID() int
	// Signal sends it to the process itself.
	Signal(os.Signal) error
	// Kill ends its whole process group.
	Kill()
	// Ended is closed when it is reaped, and nothing is left of its group.
	Ended() <-chan struct{}
	// Exit says how; it is for after Ended.
	Exit() exit
	// Listens tells whether it has a listening socket; true where nobody can tell.
	Listens() bool
}

// exit is how a process ended.
type exit struct {
	code   int            // as a shell has it: 128 and its number, where a signal ended it
	signal syscall.Signal // 0: none did
}

func (e exit) String() string {
	if e.signal != 0 {
		return fmt.Sprintf("it was ended by signal %d (%s)", int(e.signal), e.signal)
	}
	return fmt.Sprintf("it exited with %d", e.code)
}

// news is what a proxy reads at its start, or is told.
type news struct {
	digest   string // of the watched folders
	locality string
}

// life is a process from its start until it is reaped.
type life struct {
	child
	epoch     int
	base      *baseID // nil without hot restart
	since     time.Time
	knows     news
	dismissed bool        // it was sent SIGTERM by us
	deadline  *time.Timer // when it is killed, once dismissed
}

// end is nil, and so never comes, where there is no life.
func (l *life) end() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.Ended()
}

// dismiss asks it to end, and kills it where it does not.
func (l *life) dismiss(patience time.Duration) {
	if l == nil || l.dismissed {
		return
	}
	l.dismissed = true
	_ = l.Signal(syscall.SIGTERM) // it may have ended by itself
	l.deadline = time.AfterFunc(patience, l.Kill)
}

// orderly is the exit code of a life that was asked to end: dying of that very
// signal is what was asked for.
func (l *life) orderly() int {
	if e := l.Exit(); e.signal != syscall.SIGTERM {
		return e.code
	}
	return 0
}
