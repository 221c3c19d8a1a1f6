package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// library is a library for providers, below sdk/languages.
type library struct {
	language, manifest string
	files              []string // patterns; a clone may have built packages beside them
	version            func(string) string
	pack               func(folder, version, out string, when time.Time) error
}

var libraries = []library{
	{"node", "package.json", []string{"lib/*"}, plainVersion, packNode},
	{"python", "pyproject.toml", []string{"src/countersign_provider/*.*"}, pythonVersion, packPython},
	{"rust", "Cargo.toml", []string{"src/*.rs"}, plainVersion, packRust},
}

const libraryName = "countersign-provider"

// libraries packs the library of each language in the format of its package manager. An author
// unpacks it beside the provider: the project refers to that folder, and asks no registry for it.
func (d *dist) libraries() error {
	if err := packLibraries(d.root, d.version, d.out, d.time); err != nil {
		return err
	}
	packed, err := filepath.Glob(filepath.Join(d.out, "countersign?provider-*"))
	for _, path := range packed {
		if isLibrary(filepath.Base(path)) {
			err = errors.Join(err, d.signer.sign(path, "countersign library "+filepath.Base(path)))
		}
	}
	return err
}

var libraryFile = regexp.MustCompile(`^countersign[-_]provider-[0-9][^_]*(-py3-none-any\.whl|\.tar\.gz|\.tgz|\.crate)$`)

func isLibrary(name string) bool { return libraryFile.MatchString(name) }

func packLibraries(root, version, out string, when time.Time) error {
	var errs []error
	for _, l := range libraries {
		if err := l.make(filepath.Join(root, "sdk", "languages", l.language), version, out, when); err != nil {
			errs = append(errs, fmt.Errorf("the library for %s: %w", l.language, err))
		}
	}
	return errors.Join(errs...)
}

func (l library) make(from, version, out string, when time.Time) error {
	temp, err := os.MkdirTemp("", "countersign-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	for _, pattern := range append([]string{l.manifest, "README.md", "LICENSE"}, l.files...) {
		found, err := filepath.Glob(filepath.Join(from, pattern))
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%s has no %s", from, pattern)
		}
		if err != nil {
			return err
		}
		for _, path := range found {
			name, _ := filepath.Rel(from, path) // it is below from
			if err := copyFile(path, filepath.Join(temp, name), 0o644); err != nil {
				return err
			}
		}
	}
	version = l.version(version)
	if err := setLibraryVersion(filepath.Join(temp, l.manifest), version); err != nil {
		return err
	}
	return l.pack(temp, version, out, when)
}

// libraryVersion matches the line with the library's own version in each manifest.
var libraryVersion = regexp.MustCompile(`(?m)^( *"?version"? ?[:=] ?)"[^"]*"`)

func setLibraryVersion(path, version string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if found := len(libraryVersion.FindAll(text, -1)); found != 1 {
		return fmt.Errorf("%s has %d lines with a version, not 1", path, found)
	}
	return writeFile(path, libraryVersion.ReplaceAll(text, []byte(`${1}"`+version+`"`)), 0o644)
}

func plainVersion(version string) string { return strings.TrimPrefix(version, "v") }

var pythonPre = regexp.MustCompile(`^(alpha|beta|rc)\.?([0-9]+)$`)

// pythonVersion returns a version in the form that Python's packages have: PEP 440.
func pythonVersion(version string) string {
	base, pre, _ := strings.Cut(plainVersion(version), "-")
	if pre == "" {
		return base
	}
	if m := pythonPre.FindStringSubmatch(pre); m != nil {
		return base + map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[m[1]] + m[2]
	}
	return base + ".dev0+" + strings.ToLower(strings.ReplaceAll(pre, "-", "."))
}

func packNode(folder, version, out string, when time.Time) error {
	return packTar(folder, filepath.Join(out, libraryName+"-"+version+".tgz"), "package", when)
}

func packRust(folder, version, out string, when time.Time) error {
	name := libraryName + "-" + version
	return packTar(folder, filepath.Join(out, name+".crate"), name, when)
}

// packTar packs a folder under another name.
func packTar(folder, path, below string, when time.Time) error {
	return create(path, func(w io.Writer) error {
		return tarGz(w, folder, below, when)
	})
}
