package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// published is one version of a module in the folder of a module proxy
// (https://go.dev/ref/mod#goproxy-protocol).
type published struct {
	folder, version, time string
}

// write returns the hash of the module's files.
func (p published) write(root string, m *member) (hash string, err error) {
	if err := os.MkdirAll(p.folder, 0o755); err != nil {
		return "", err
	}
	when, err := time.Parse(time.RFC3339, p.time)
	if err != nil {
		return "", err
	}
	info := fmt.Sprintf("{\"Version\":%q,\"Time\":%q}\n", p.version, when.UTC().Format(time.RFC3339))
	files, err := contents(root, m)
	if err != nil {
		return "", err
	}
	if err := errors.Join(p.put(".info", []byte(info)), p.put(".mod", m.files["go.mod"]), p.zip(m, files), p.list()); err != nil {
		return "", err
	}
	return dirhash.HashZip(p.path(".zip"), dirhash.Hash1)
}

func (p published) path(suffix string) string { return filepath.Join(p.folder, p.version+suffix) }

func (p published) put(suffix string, data []byte) error {
	return os.WriteFile(p.path(suffix), data, 0o644)
}

// list names all versions in the folder: one that is there already stays.
func (p published) list() error {
	infos, err := filepath.Glob(filepath.Join(p.folder, "*.info"))
	var text strings.Builder
	for _, info := range infos {
		fmt.Fprintln(&text, strings.TrimSuffix(filepath.Base(info), ".info"))
	}
	return errors.Join(err, os.WriteFile(filepath.Join(p.folder, "list"), []byte(text.String()), 0o644))
}

func (p published) zip(m *member, files fstest.MapFS) (err error) {
	to, err := os.Create(p.path(".zip"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	var all []zip.File
	for name := range files {
		all = append(all, file{files, name})
	}
	slices.SortFunc(all, func(a, b zip.File) int { return strings.Compare(a.Path(), b.Path()) })
	return zip.Create(to, module.Version{Path: m.path(), Version: p.version}, all)
}

// contents are the files of a module that git tracks, as released. A module without a license
// of its own gets the repository's, and symbolic links are left out, as the go command does when
// it takes a module from git. [zip.Create] leaves out what belongs to nested modules.
func contents(root string, m *member) (fstest.MapFS, error) {
	dir := filepath.Join(root, m.dir)
	names, err := git(dir, "ls-files")
	if err != nil {
		return nil, err
	}
	files := fstest.MapFS{}
	for name := range strings.SplitSeq(names, "\n") {
		path := filepath.Join(dir, name)
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			continue
		}
		if err := add(files, name, path); err != nil {
			return nil, err
		}
	}
	if files["LICENSE"] == nil {
		err = add(files, "LICENSE", filepath.Join(root, "LICENSE"))
	}
	for name, data := range m.files {
		files[name] = &fstest.MapFile{Data: data}
	}
	return files, err
}

func add(files fstest.MapFS, name, from string) error {
	data, err := os.ReadFile(from)
	files[name] = &fstest.MapFile{Data: data}
	return err
}

// file is what [zip.Create] reads.
type file struct {
	files fs.FS
	name  string
}

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (fs.FileInfo, error)  { return fs.Stat(f.files, f.name) }
func (f file) Open() (io.ReadCloser, error) { return f.files.Open(f.name) }

func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	return strings.TrimSpace(string(out)), nil
}
