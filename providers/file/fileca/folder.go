package fileca

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// folder tells when something happens to one of the CA's files or to a link on the
// way to it. Only the goroutine of watch uses it.
type folder struct {
	dir     string
	watcher *fsnotify.Watcher // nil: no events here, the poll must do
	names   map[string]names  // what matters, by the real folder it is in
	events  <-chan fsnotify.Event
	errors  <-chan error
}

type names map[string]bool

func openFolder(dir string, log *slog.Logger) *folder {
	f := &folder{dir: dir}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("no events of the folder, changes are found by polling alone", "dir", dir, "error", err)
		return f
	}
	f.watcher, f.events, f.errors = watcher, watcher.Events, watcher.Errors
	f.follow()
	return f
}

func (f *folder) close() {
	if f.watcher != nil {
		_ = f.watcher.Close() // nothing is kept that could be lost
	}
}

// concerns tells whether the event is of a name that matters.
func (f *folder) concerns(event fsnotify.Event) bool {
	if _, watched := f.names[event.Name]; watched {
		return true // the folder itself went away
	}
	return f.names[filepath.Dir(event.Name)][filepath.Base(event.Name)]
}

// follow watches the folders that matter now: links may lead elsewhere than they
// did, and a folder that was replaced is another one under the same name.
func (f *folder) follow() {
	if f.watcher == nil {
		return
	}
	f.names = map[string]names{}
	f.add(f.dir) // it may itself be replaced
	for _, name := range []string{certFile, keyFile, chainFile, rootFile} {
		path := filepath.Join(f.dir, name)
		f.add(path)
		f.addLinks(path, 0)
	}
	for _, dir := range f.watcher.WatchList() {
		if f.names[dir] == nil {
			// It fails where the folder is gone, and the watch with it.
			_ = f.watcher.Remove(dir)
		}
	}
	for dir := range f.names {
		// A folder that cannot be watched is left to the poll.
		_ = f.watcher.Add(dir)
	}
}

// add notes that path matters.
func (f *folder) add(path string) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return
	}
	if f.names[dir] == nil {
		f.names[dir] = names{}
	}
	f.names[dir][filepath.Base(path)] = true
}

// maxLinks is how many links one path may go through, as in the Linux kernel.
const maxLinks = 40

// addLinks notes each link on the way along path, and where it leads.
func (f *folder) addLinks(path string, depth int) {
	if depth == maxLinks {
		return
	}
	for part := path; part != filepath.Dir(part); part = filepath.Dir(part) {
		target, err := os.Readlink(part)
		if err != nil {
			continue // no link
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(part), target)
		}
		f.add(part)
		f.add(target)
		f.addLinks(target, depth+1)
	}
}
