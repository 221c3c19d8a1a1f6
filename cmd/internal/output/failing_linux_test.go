package output_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/internal/test/logtest"
)

// asWriter in the environment, a job, makes the test binary a process that does it.
// A number on its input is the size that its files may have, any other line a
// rotation; it prints each event.
const asWriter = "OUTPUT_TEST_WRITER"

// job is what another process writes.
type job struct {
	Folder, Link string
	Owner        *int
	caps         []uintptr // what the process may do, though it is not root's
}

// TestWriter is that process, not a test.
func TestWriter(t *testing.T) {
	var j job
	if json.Unmarshal([]byte(os.Getenv(asWriter)), &j) != nil {
		return
	}
	syscall.Umask(0o077)           // as deploy/systemd has it
	signal.Ignore(syscall.SIGXFSZ) // a limit on files is an error, as a full disk
	source := newRotating(t)
	r := start(t, output.Config{Folder: j.Folder, Link: j.Link, UID: j.Owner}, source)
	go func() {
		for event := range r.events {
			fmt.Printf("%s\nevent %s\n", r.log, event)
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

const nobody = 65534

// openDir is a folder that another user may enter and, where this one is root, owns.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "output")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	if os.Getuid() == 0 {
		must(t, os.Chown(dir, nobody, nobody))
	}
	return dir
}

// other is a writer of another process, and of another user where this one is root.
type other struct {
	t      *testing.T
	cmd    *exec.Cmd
	input  io.WriteCloser
	events chan string
	log    *logtest.Log
}

func startOther(t *testing.T, j job) *other {
	t.Helper()
	// Its path may lead through a folder that another user may not enter.
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestWriter$")
	text, err := json.Marshal(j)
	must(t, err)
	cmd.Env = append(os.Environ(), asWriter+"="+string(text))
	cmd.Dir = "/"
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: j.caps}
	}
	input, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	o := &other{t, cmd, input, make(chan string, 100), &logtest.Log{}}
	go func() {
		defer close(o.events)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var event string
			if _, err := fmt.Sscanf(lines.Text(), "event %s", &event); err == nil {
				o.events <- event
			} else {
				fmt.Fprintln(o.log, lines.Text())
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

func (o *other) mustSay(words string) {
	o.t.Helper()
	if text := o.log.String(); !strings.Contains(text, words) {
		o.t.Errorf("the writer does not say %q:\n%s", words, text)
	}
}

func (o *other) tell(line string) {
	o.t.Helper()
	_, err := io.WriteString(o.input, line+"\n")
	must(o.t, err)
}

func TestFailedWriteKeepsOldFilesAndIsRetried(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	for _, link := range []string{"", "current"} {
		dir := openDir(t)
		files := filepath.Join(dir, link)
		w := startOther(t, job{Folder: dir, Link: link})
		w.await(output.Written)
		for name, trouble := range map[string]struct{ begin, end func() }{
			"full disk":        {func() { w.tell("300") }, func() { w.tell(strconv.FormatUint(math.MaxUint64, 10)) }},
			"read-only folder": {func() { must(t, os.Chmod(dir, 0o500)) }, func() { must(t, os.Chmod(dir, 0o700)) }},
		} {
			before := contents(t, files)
			trouble.begin()
			w.tell("rotate")
			w.await(output.WriteFailed)
			if !maps.EqualFunc(before, contents(t, files), bytes.Equal) {
				t.Errorf("%s, link %q: the files are others", name, link)
			}
			trouble.end()
			w.await(output.Written)
			if after := contents(t, files); len(after) != 3 || bytes.Equal(after["key.pem"], before["key.pem"]) {
				t.Errorf("%s, link %q: after it there are %d files", name, link, len(after))
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 3 { // three files, or two sets and the link
			t.Errorf("link %q: what failed has left %v, %v", link, left, err)
		}
	}
}

func TestUnreplaceableFileLeavesOthersUnchanged(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	source, dir := newRotating(t), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "key.pem", "a-folder"), 0o700), os.WriteFile(filepath.Join(dir, "cert-chain.pem"), []byte("old"), 0o600))
	r := start(t, output.Config{Folder: dir}, source)
	r.await(output.WriteFailed)
	if got := read(t, dir, "cert-chain.pem"); string(got) != "old" {
		t.Error("the chain is another than before")
	}
	must(t, os.RemoveAll(filepath.Join(dir, "key.pem")))
	r.await(output.Written)
	if got := contents(t, dir); len(got) != 3 || !bytes.Equal(got["key.pem"], source.held("default").Key) {
		t.Errorf("there are %d files", len(got))
	}
}

// What reads the link's target would keep an old certificate without a word.
func TestReplacedLinkIsReported(t *testing.T) {
	source, dir := newRotating(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "target"), []byte("old"), 0o600))
	folder := filepath.Join(dir, "out")
	must(t, os.Mkdir(folder, 0o700), os.Symlink("../target", filepath.Join(folder, "key.pem")))
	r := start(t, output.Config{Folder: folder}, source)
	r.await(output.Written)
	if text := r.log.String(); strings.Count(text, "a link is replaced by a file") != 1 || !strings.Contains(text, "file=key.pem target=../target") {
		t.Error(text)
	}
	if got := read(t, dir, "target"); string(got) != "old" {
		t.Error("the link was followed")
	}
}

func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, entry := range entries {
		all[entry.Name()] = read(t, dir, entry.Name())
	}
	return all
}
