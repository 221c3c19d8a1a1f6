package reference

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	maxFiles = 64
	maxPath  = 4096
)

// Files returns files that the settings may name: those of references, their programs too, and
// each text that is an absolute path or names a file that is there. Only the provider has the
// settings that are paths. A secret that stands in the configuration is not looked at.
func (r *Resolver) Files(paths Paths) []string {
	plain, err := plainJSON(r.settings, paths)
	if err != nil {
		return nil
	}
	var found []string
	collect(plain, paths.Root(), func(path string) { found = append(found, path) })
	slices.Sort(found)
	found = slices.Compact(found)
	return found[:min(maxFiles, len(found))]
}

func collect(value any, at Place, add func(string)) {
	switch value := value.(type) {
	case map[string]any:
		if ref, err := parse(value); err == nil && at.ends() && !at.leads() {
			for _, path := range append(ref.command, ref.file)[:1] {
				if path != "" {
					add(path)
				}
			}
			return
		}
		for name, below := range value {
			collect(below, at.Below(name), add)
		}
	case []any:
		for i, below := range value {
			collect(below, at.Below(strconv.Itoa(i)), add)
		}
	case string:
		if !at.Secret() && isPath(value) {
			add(value)
		}
	}
}

func isPath(word string) bool {
	if len(word) > maxPath || strings.ContainsAny(word, "\x00\n") {
		return false
	}
	if filepath.IsAbs(word) {
		return true
	}
	info, err := os.Stat(word)
	return err == nil && info.Mode().IsRegular()
}
