package safefile

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

// patience is how long a file system may take to answer: one that is mounted over a network
// may be away, and then a call does not return.
const patience = 5 * time.Second

// Read reads a regular file of so many bytes at most. It fails after 5 seconds if the file
// system does not answer, and at once while an earlier call for the same path still hangs.
func Read(path string, most int64) ([]byte, error) {
	content, err := inTime(path, patience, func() ([]byte, error) { return read(path, most) })
	return content, errno.Explain(err)
}

// Stat is [os.Stat] that fails as Read does if the file system does not answer.
func Stat(path string) (os.FileInfo, error) {
	return inTime(path, patience, func() (os.FileInfo, error) { return os.Stat(path) })
}

func read(path string, most int64) ([]byte, error) {
	// Asked before it is opened: opening a named pipe would wait for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadAll(file, path, most)
}

// hung counts the calls for each path that have not returned in time. It is shared by the whole
// process, so that a mount that is away costs a goroutine and a thread for each caller at most,
// and not for each call.
var hung = struct {
	mu     sync.Mutex
	byPath map[string]int
}{byPath: map[string]int{}}

// inTime runs f, which no context can end, and leaves it behind after most.
func inTime[T any](path string, most time.Duration, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if hangs(path, 0) > 0 {
		return none, fmt.Errorf("%s: the file system does not answer since an earlier call: check its mount", path)
	}
	done := make(chan result) // without room: who leaves first is decided by the receiver
	late := make(chan struct{})
	go func() {
		value, err := f()
		select {
		case done <- result{value, err}:
		case <-late:
			hangs(path, -1)
		}
	}()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
		hangs(path, 1)
		close(late)
		return none, fmt.Errorf("%s: the file system did not answer within %s: check its mount", path, most)
	}
}

// hangs adds to the calls that hang for a path, and returns how many there are.
func hangs(path string, more int) int {
	hung.mu.Lock()
	defer hung.mu.Unlock()
	n := hung.byPath[path] + more
	if hung.byPath[path] = n; n == 0 {
		delete(hung.byPath, path)
	}
	return n
}

// ReadAll reads so many bytes at most from r, which errors call name.
func ReadAll(r io.Reader, name string, most int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(content)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return content, err
}
