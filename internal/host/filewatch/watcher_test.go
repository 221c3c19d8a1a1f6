package filewatch_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/host/filewatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// events alone must do: the poll is far away.
func watching(t *testing.T, opts filewatch.Options, paths ...string) *filewatch.Watcher {
	t.Helper()
	if opts.Poll == 0 {
		opts.Poll = time.Hour
	}
	opts.Debounce = time.Millisecond
	w := filewatch.New(opts, paths...)
	t.Cleanup(w.Close)
	return w
}

func mustTell(t *testing.T, w *filewatch.Watcher, what string) {
	t.Helper()
	select {
	case <-w.C:
	case <-time.After(patience):
		t.Fatalf("%s sent no notice", what)
	}
}

// quiet waits until no more notices come of what was done.
func quiet(w *filewatch.Watcher) {
	for {
		select {
		case <-w.C:
		case <-time.After(50 * time.Millisecond):
			return
		}
	}
}

func do(t *testing.T, steps ...error) {
	t.Helper()
	for _, err := range steps {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func write(path string) error { return os.WriteFile(path, []byte(path), 0o600) }

func TestFileBelowMissingFoldersIsNoticed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a", "b", "c", "file")
	w := watching(t, filewatch.Options{}, file)
	for _, step := range []string{"a", "a/b", "a/b/c"} {
		do(t, os.Mkdir(filepath.Join(dir, step), 0o700))
		mustTell(t, w, step)
	}
	do(t, write(file))
	mustTell(t, w, "the file")
}

func TestReplacedAncestorFolderIsNoticed(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "a", "b", "c", "file")
	do(t, os.MkdirAll(filepath.Dir(file), 0o700), write(file))
	w := watching(t, filewatch.Options{}, file)
	for range 3 {
		do(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "old")), os.MkdirAll(filepath.Dir(file), 0o700), write(file))
		mustTell(t, w, "the exchange")
		quiet(w)
		do(t, write(file))
		mustTell(t, w, "a change in the new folder")
		quiet(w)
		do(t, os.RemoveAll(filepath.Join(dir, "old")))
	}
}

func TestEveryLinkOfChainIsWatched(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	do(t, os.MkdirAll(at("real/deep"), 0o700), os.MkdirAll(at("links"), 0o700), write(at("real/deep/file")),
		os.Symlink("../real/deep", at("links/two")), os.Symlink("links/two/../deep", at("one")))
	w := watching(t, filewatch.Options{}, at("one/file"))
	for _, link := range []string{"links/two", "one"} {
		target, err := os.Readlink(at(link))
		do(t, err, os.Symlink(target, at("fresh")), os.Rename(at("fresh"), at(link)))
		mustTell(t, w, link)
		quiet(w)
	}
	do(t, write(at("real/deep/file")))
	mustTell(t, w, "the file behind two links")
}

func TestNewFileInFolderIsNoticed(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	do(t, os.Mkdir(filepath.Join(dir, "real"), 0o700), os.Symlink("real", folder))
	w := watching(t, filewatch.Options{Poll: time.Hour}, folder+string(filepath.Separator))
	do(t, write(filepath.Join(folder, "new")))
	mustTell(t, w, "a new file")
	quiet(w)
	do(t, os.Remove(filepath.Join(folder, "new")))
	mustTell(t, w, "its end")
	quiet(w)
	do(t, os.Mkdir(filepath.Join(dir, "other"), 0o700), os.Symlink("other", filepath.Join(dir, "fresh")), os.Rename(filepath.Join(dir, "fresh"), folder))
	mustTell(t, w, "the folder's exchange")
	quiet(w)
	do(t, write(filepath.Join(dir, "other", "file")))
	mustTell(t, w, "a file in the other folder")
}

func TestSymlinkLoopIsGivenUp(t *testing.T) {
	dir := t.TempDir()
	loop := filepath.Join(dir, "loop")
	do(t, os.Symlink("loop", loop))
	w := watching(t, filewatch.Options{}, filepath.Join(loop, "file"))
	do(t, os.Remove(loop))
	mustTell(t, w, "the end of the loop")
}

func TestOtherFilesAreIgnored(t *testing.T) {
	dir := t.TempDir()
	w := watching(t, filewatch.Options{}, filepath.Join(dir, "mine"))
	do(t, write(filepath.Join(dir, "other")), write(filepath.Join(dir, "mine")))
	mustTell(t, w, "mine")
	quiet(w)
	w.Set(filepath.Join(dir, "third"))
	for range 5 { // on a busy machine news of before comes late, but only once
		do(t, write(filepath.Join(dir, "mine")), write(filepath.Join(dir, "other")))
		select {
		case <-w.C:
		case <-time.After(100 * time.Millisecond):
			return
		}
	}
	t.Error("files that are not watched send notices")
}

func TestPollingWorksWithoutEvents(t *testing.T) {
	w := watching(t, filewatch.Options{NoEvents: true, Poll: 10 * time.Millisecond}, "nowhere")
	for range 3 {
		mustTell(t, w, "the interval")
	}
	w.Close()
	w.Close()
}
