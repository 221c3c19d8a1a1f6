package output_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/sdk/filesecret/output"
)

// asWriter in the environment, a folder, makes the test binary a process that
// writes to it. A number on its input is the size that its files may have, any
// other line a rotation; it tells each event.
const asWriter = "OUTPUT_TEST_WRITER"

// TestWriter is no test but that process.
func TestWriter(t *testing.T) {
	dir := os.Getenv(asWriter)
	if dir == "" {
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // a limit on files is an error, as a full disk
	source := newRotating(t)
	r := start(t, output.Config{Folder: dir}, source)
	go func() {
		for event := range r.events {
			fmt.Println("event", event)
		}
	}()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		size, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			source.rotate()
			continue
		}
		var limit unix.Rlimit
		must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &limit))
		limit.Cur = min(size, limit.Max)
		must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit))
	}
	close(r.events)
}

// other is a writer of another process, and of another user where this one is root.
type other struct {
	t      *testing.T
	cmd    *exec.Cmd
	input  io.WriteCloser
	events chan string
}

func startOther(t *testing.T, dir string) *other {
	t.Helper()
	// Its path may lead through a folder that another user may not enter.
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestWriter$")
	cmd.Env = append(os.Environ(), asWriter+"="+dir)
	cmd.Dir = "/"
	if os.Getuid() == 0 {
		const nobody = 65534
		must(t, os.Chown(dir, nobody, nobody))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	input, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	o := &other{t, cmd, input, make(chan string, 100)}
	go func() {
		defer close(o.events)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var event string
			if _, err := fmt.Sscanf(lines.Text(), "event %s", &event); err == nil {
				o.events <- event
			}
		}
	}()
	t.Cleanup(func() {
		must(t, input.Close())
		for range o.events { //nolint:revive // until it has ended
		}
		must(t, cmd.Wait())
	})
	return o
}

func (o *other) await(want output.EventType) {
	o.t.Helper()
	for {
		select {
		case got, ok := <-o.events:
			if got == string(want) {
				return
			}
			if !ok {
				o.t.Fatalf("the writer ended before %s", want)
			}
		case <-time.After(patience):
			o.t.Fatalf("%s did not happen", want)
		}
	}
}

func (o *other) tell(line string) {
	o.t.Helper()
	_, err := io.WriteString(o.input, line+"\n")
	must(o.t, err)
}

func TestWhatCannotBeWrittenLeavesTheOldFilesWholeAndIsTriedAgain(t *testing.T) {
	dir, err := os.MkdirTemp("", "output") // which another user may enter
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	w := startOther(t, dir)
	w.await(output.Written)
	for name, trouble := range map[string]struct{ begin, end func() }{
		"full disk":        {func() { w.tell("300") }, func() { w.tell(strconv.FormatUint(math.MaxUint64, 10)) }},
		"read-only folder": {func() { must(t, os.Chmod(dir, 0o500)) }, func() { must(t, os.Chmod(dir, 0o700)) }},
	} {
		before := contents(t, dir)
		trouble.begin()
		w.tell("rotate")
		w.await(output.WriteFailed)
		for file, content := range contents(t, dir) {
			if !bytes.Equal(content, before[file]) {
				t.Errorf("%s: %s is another", name, file)
			}
		}
		trouble.end()
		w.await(output.Written)
		if after := contents(t, dir); len(after) != 3 || bytes.Equal(after["key.pem"], before["key.pem"]) {
			t.Errorf("%s: after it there are %d files", name, len(after))
		}
	}
}

func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, entry := range entries {
		all[entry.Name()] = read(t, filepath.Join(dir, entry.Name()))
	}
	return all
}
