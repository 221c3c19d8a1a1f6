package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// pyproject is the part of pyproject.toml that a wheel repeats: https://packaging.python.org/specifications/pyproject-toml/.
type pyproject struct {
	Project struct {
		Name, Version, Description, License string
		RequiresPython                      string `toml:"requires-python"`
		Dependencies                        []string
		Extras                              map[string][]string `toml:"optional-dependencies"`
		URLs                                map[string]string
	}
}

// packPython makes the source package and the wheel, with the files and the requirements that the
// build backend of pyproject.toml gives them, in one order and of one time.
func packPython(folder, version, out string, when time.Time) error {
	metadata, err := metadataOf(folder)
	if err != nil {
		return err
	}
	name := "countersign_provider-" + version
	if err := writeFile(filepath.Join(folder, "PKG-INFO"), metadata, 0o644); err != nil {
		return err
	}
	if err := packTar(folder, filepath.Join(out, name+".tar.gz"), name, when); err != nil {
		return err
	}
	wheel := filepath.Join(folder, "wheel")
	if err := layOutWheel(folder, wheel, name+".dist-info", metadata); err != nil {
		return err
	}
	return create(filepath.Join(out, name+"-py3-none-any.whl"), func(w io.Writer) error { return zipped(w, wheel, "", when) })
}

// metadataOf returns core metadata 2.4: https://packaging.python.org/specifications/core-metadata/.
func metadataOf(folder string) ([]byte, error) {
	var m pyproject
	if _, err := toml.DecodeFile(filepath.Join(folder, "pyproject.toml"), &m); err != nil {
		return nil, err
	}
	readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	p := m.Project
	fmt.Fprintf(&text, "Metadata-Version: 2.4\nName: %s\nVersion: %s\nSummary: %s\nRequires-Python: %s\nLicense-Expression: %s\nLicense-File: LICENSE\n",
		p.Name, p.Version, p.Description, p.RequiresPython, p.License)
	for _, name := range slices.Sorted(maps.Keys(p.URLs)) {
		fmt.Fprintf(&text, "Project-URL: %s, %s\n", name, p.URLs[name])
	}
	for _, dependency := range p.Dependencies {
		fmt.Fprintf(&text, "Requires-Dist: %s\n", dependency)
	}
	for _, extra := range slices.Sorted(maps.Keys(p.Extras)) {
		fmt.Fprintf(&text, "Provides-Extra: %s\n", extra)
		for _, dependency := range p.Extras[extra] {
			fmt.Fprintf(&text, "Requires-Dist: %s; extra == '%s'\n", dependency, extra)
		}
	}
	fmt.Fprintf(&text, "Description-Content-Type: text/markdown\n\n%s", readme)
	return []byte(text.String()), nil
}

// layOutWheel writes what a wheel has: https://packaging.python.org/specifications/binary-distribution-format/.
func layOutWheel(folder, wheel, info string, metadata []byte) error {
	sources, err := filepath.Glob(filepath.Join(folder, "src", "*", "*"))
	if err != nil {
		return err
	}
	for _, path := range sources {
		name, _ := filepath.Rel(filepath.Join(folder, "src"), path) // it is below src
		if err := copyFile(path, filepath.Join(wheel, name), 0o644); err != nil {
			return err
		}
	}
	if err := copyFile(filepath.Join(folder, "LICENSE"), filepath.Join(wheel, info, "licenses", "LICENSE"), 0o644); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"METADATA": string(metadata),
		"WHEEL":    "Wheel-Version: 1.0\nGenerator: countersign\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	} {
		if err := writeFile(filepath.Join(wheel, info, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return writeRecord(wheel, info)
}

// writeRecord lists all files of a wheel with their hashes.
func writeRecord(wheel, info string) error {
	var text strings.Builder
	err := walk(wheel, func(file, name string, entry fs.FileInfo) error {
		if entry.IsDir() {
			return nil
		}
		content, err := os.ReadFile(file)
		hash := sha256.Sum256(content)
		fmt.Fprintf(&text, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(hash[:]), len(content))
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(&text, "%s/RECORD,,\n", info)
	return writeFile(filepath.Join(wheel, info, "RECORD"), []byte(text.String()), 0o644)
}
