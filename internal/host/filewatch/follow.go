package filewatch

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many links one path may go through, as in the Linux kernel.
const maxLinks = 40

// everyName stands for all that is in a folder; no file is called so.
const everyName = ""

// concerns tells whether a change of that path matters.
func (w *Watcher) concerns(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, watched := w.names[path]; watched {
		return true // the folder itself went away
	}
	in := w.names[filepath.Dir(path)]
	return in[everyName] || in[filepath.Base(path)]
}

// follow watches the folders that matter now: links may lead elsewhere than they
// did, and a folder that was replaced is another one under the same name. It goes
// round until nothing changed while the watches were set. w.mu is held.
func (w *Watcher) follow() {
	if w.events == nil {
		return
	}
	for range 5 {
		names := map[string]map[string]bool{}
		for _, path := range w.paths {
			trace(path, names)
		}
		same := maps.EqualFunc(names, w.names, maps.Equal)
		w.names = names
		w.watch()
		if same {
			return
		}
	}
}

func (w *Watcher) watch() {
	for _, dir := range w.events.WatchList() {
		if w.names[dir] == nil {
			// It fails where the folder is gone, and the watch with it.
			_ = w.events.Remove(dir)
		}
	}
	for dir := range w.names {
		// A folder that cannot be watched is left to the poll.
		_ = w.events.Add(dir)
	}
}

// trace notes every name on the way to a file: each folder, each link, and each
// folder and link on the way to where that leads. A name that is missing is the
// last one. Of a path that ends in a separator, every name in that folder is noted.
func trace(path string, names map[string]map[string]bool) {
	whole := os.IsPathSeparator(lastByte(path))
	path, err := filepath.Abs(path)
	if err != nil {
		return // there is no working folder any more
	}
	dir, rest := split(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir) // of a real folder, so no link comes in between
			continue
		}
		note(names, dir, name)
		next := filepath.Join(dir, name)
		info, err := os.Lstat(next)
		if err != nil {
			return
		}
		if info.Mode().Type() != os.ModeSymlink {
			dir = next
			continue
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return
		}
		var more []string
		if filepath.IsAbs(target) {
			dir, more = split(target)
		} else {
			more = strings.Split(target, string(filepath.Separator))
		}
		rest = append(more, rest...)
	}
	if whole {
		note(names, dir, everyName)
	}
}

func lastByte(path string) byte {
	if path == "" {
		return 0
	}
	return path[len(path)-1]
}

func note(names map[string]map[string]bool, dir, name string) {
	if names[dir] == nil {
		names[dir] = map[string]bool{}
	}
	names[dir][name] = true
}

// split returns the root of an absolute path, and the names below it.
func split(path string) (root string, names []string) {
	volume := filepath.VolumeName(path)
	separator := string(filepath.Separator)
	return volume + separator, strings.Split(strings.TrimPrefix(path[len(volume):], separator), separator)
}
