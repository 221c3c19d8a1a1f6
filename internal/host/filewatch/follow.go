package filewatch

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks limits the links of one path, as the Linux kernel does.
const maxLinks = 40

// everyName stands for every file in a folder; it is not a valid file name.
const everyName = ""

// concerns reports whether a change of that path matters.
func (w *Watcher) concerns(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, watched := w.names[path]; watched {
		return true // the folder itself went away
	}
	in := w.names[filepath.Dir(path)]
	return in[everyName] || in[filepath.Base(path)]
}

// follow watches the folders that matter now: links may have a new target, and a replaced
// folder needs a new watch. It repeats until nothing changed while it set the watches.
// w.mu is held.
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
			// It fails if the folder is gone, and the watch with it.
			_ = w.events.Remove(dir)
		}
	}
	for dir := range w.names {
		// Polling covers a folder that cannot be watched.
		_ = w.events.Add(dir)
	}
}

// trace collects every name on the way to a file: each folder and link, and those on the
// way to a link's target, up to the first missing name. For a path that ends in a
// separator it adds every name in that folder.
func trace(path string, names map[string]map[string]bool) {
	whole := os.IsPathSeparator(lastByte(path))
	path, err := filepath.Abs(path)
	if err != nil {
		return // the working folder is gone
	}
	dir, rest := split(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir) // dir has no links
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
