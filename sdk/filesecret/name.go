package filesecret

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// The prefixes of names that carry their paths, as in Istio.
const (
	certPrefix = "file-cert:" // file-cert:<chain>~<key>
	rootPrefix = "file-root:" // file-root:<ca>, file-root:system
)

// maxName bounds the length of such a name.
const maxName = 4096

// isDynamic reports whether a name carries its paths.
func isDynamic(name string) bool {
	return strings.HasPrefix(name, certPrefix) || strings.HasPrefix(name, rootPrefix)
}

// parseName returns the Spec for a dynamic name.
func parseName(name string) (Spec, error) {
	if len(name) > maxName {
		return Spec{}, fmt.Errorf("the name has %d bytes, %d are allowed", len(name), maxName)
	}
	if roots, ok := strings.CutPrefix(name, rootPrefix); ok {
		return Spec{Name: name, Roots: roots}, checkPaths(roots)
	}
	chain, key, ok := strings.Cut(strings.TrimPrefix(name, certPrefix), "~")
	if !ok {
		return Spec{}, fmt.Errorf("write %s<chain>~<key>", certPrefix)
	}
	return Spec{Name: name, Chain: chain, Key: key}, checkPaths(chain, key)
}

// checkPaths rejects paths that may mean another file than they appear to.
func checkPaths(paths ...string) error {
	for _, path := range paths {
		switch {
		case path == "":
			return errors.New("a path is empty")
		case strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '~' }):
			return errors.New("a path holds a control character or a second '~'")
		case slices.Contains(strings.Split(filepath.ToSlash(path), "/"), ".."):
			return errors.New("a path goes up by '..'")
		}
	}
	return nil
}
