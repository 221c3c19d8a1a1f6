package output_test

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/cmd/internal/output"
)

// another returns a user and a group that files may be given to: others, where this
// is root.
func another() (uid, gid int) {
	if os.Getuid() == 0 {
		return nobody, nobody - 1
	}
	return os.Getuid(), os.Getgid()
}

func TestFileHasModeAndOwnerBeforeContent(t *testing.T) {
	source, dir := newRotating(t), t.TempDir()
	uid, gid := another()
	happens := watchFolder(t, dir)
	r := start(t, output.Config{Folder: dir, UID: &uid, GID: &gid, Files: []output.File{{Name: "key.pem", Content: output.Key, Mode: 0o640}}}, source)
	r.await(output.Written)
	info, err := os.Stat(filepath.Join(dir, "key.pem"))
	must(t, err)
	if got := info.Sys().(*syscall.Stat_t); info.Mode() != 0o640 || int(got.Uid) != uid || int(got.Gid) != gid {
		t.Errorf("the file has mode %s, user %d, group %d", info.Mode(), got.Uid, got.Gid)
	}
	// The changes of group, mode and user are one event, as no other came between them.
	if got := happens(); !slices.Equal(got, []string{"create", "attrib", "modify", "rename"}) {
		t.Errorf("the new file saw %v", got)
	}
}

// watchFolder returns a function that reports all that happened to unfinished files since.
func watchFolder(t *testing.T, dir string) (happened func() []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Close(fd)) })
	words := map[uint32]string{unix.IN_CREATE: "create", unix.IN_ATTRIB: "attrib", unix.IN_MODIFY: "modify", unix.IN_MOVED_FROM: "rename"}
	var all uint32
	for mask := range maps.Keys(words) {
		all |= mask
	}
	_, err = unix.InotifyAddWatch(fd, dir, all)
	must(t, err)
	return func() (seen []string) {
		buffer := make([]byte, 1<<16)
		n, err := unix.Read(fd, buffer)
		must(t, err)
		for rest := buffer[:n]; len(rest) > 0; {
			// inotify(7): wd, mask, cookie, the length of the name, the name.
			mask, length := binary.NativeEndian.Uint32(rest[4:]), binary.NativeEndian.Uint32(rest[12:])
			name := string(bytes.TrimRight(rest[unix.SizeofInotifyEvent:][:length], "\x00"))
			if rest = rest[unix.SizeofInotifyEvent+length:]; strings.HasPrefix(name, ".") {
				seen = append(seen, words[mask])
			}
		}
		return seen
	}
}

func TestImpossibleOwnerIsRefusedAndOldFilesStay(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	for _, link := range []string{"", "current"} {
		dir, root := openDir(t), 0
		startOther(t, job{Folder: dir, Link: link}).await(output.Written)
		before := contents(t, filepath.Join(dir, link))
		w := startOther(t, job{Folder: dir, Link: link, Owner: &root})
		w.await(output.WriteFailed)
		w.await(output.WriteFailed) // it is tried again
		if !maps.EqualFunc(before, contents(t, filepath.Join(dir, link)), bytes.Equal) {
			t.Errorf("link %q: the old files are others", link)
		}
		w.mustSay("change the file's owner to user 0 (needs root, CAP_CHOWN or that user)")
	}
}

// Which an agent that is not root gets from its service manager.
func TestCapChownSufficesToGiveFilesAway(t *testing.T) {
	dir := openDir(t)
	uid := os.Getuid()
	if uid == 0 {
		uid = nobody - 1 // no agent runs here
	}
	startOther(t, job{Folder: dir, Owner: &uid, caps: []uintptr{unix.CAP_CHOWN}}).await(output.Written)
	info, err := os.Stat(filepath.Join(dir, "cert-chain.pem"))
	must(t, err)
	if got := int(info.Sys().(*syscall.Stat_t).Uid); got != uid || info.Mode() != 0o644 {
		t.Errorf("the file is user %d's, %s", got, info.Mode())
	}
}

func TestFoldersAreTraversableWhateverTheUmask(t *testing.T) {
	dir := openDir(t)
	startOther(t, job{Folder: filepath.Join(dir, "made", "here"), Link: "current"}).await(output.Written)
	for _, folder := range []string{"made", "made/here", "made/here/current"} {
		info, err := os.Stat(filepath.Join(dir, folder))
		must(t, err)
		if info.Mode().Perm() != 0o755 {
			t.Errorf("%s has mode %s", folder, info.Mode())
		}
	}
	for name, mode := range map[string]fs.FileMode{"key.pem": 0o600, "cert-chain.pem": 0o644} {
		info, err := os.Stat(filepath.Join(dir, "made/here/current", name))
		must(t, err)
		if info.Mode() != mode {
			t.Errorf("%s has mode %s", name, info.Mode())
		}
	}
}

func TestTwoLinksInOneFolderAreIndependent(t *testing.T) {
	source, dir := newRotating(t), t.TempDir()
	a, b := start(t, output.Config{Folder: dir, Link: "a"}, source), start(t, output.Config{Folder: dir, Link: "a-b"}, source)
	for range 4 {
		a.await(output.Written)
		b.await(output.Written)
		for _, link := range []string{"a", "a-b"} {
			if got := contents(t, filepath.Join(dir, link)); len(got) != 3 {
				t.Fatalf("behind the link %s are %d files", link, len(got))
			}
		}
		source.rotate()
	}
}
