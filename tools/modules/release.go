package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
)

// member is a module of go.work.
type member struct {
	dir   string // from the root of the repository, with slashes
	file  *modfile.File
	files map[string][]byte // of which the release has another version: go.mod, go.sum, go.work
}

func (m *member) path() string { return m.file.Module.Mod.Path }

// tag is the module's tag in git.
func (m *member) tag(version string) string { return path.Join(m.dir, version) }

// sums are the lines of a go.sum.
type sums map[module.Version]string

// release writes all modules into the folder, those first that others require, and returns
// them in this order: the go.sum of a module has the hashes of those it requires.
func release(root, version, folder string) ([]*member, error) {
	all, err := workspace(root, version)
	if err != nil {
		return nil, err
	}
	when, err := git(root, "log", "-1", "--format=%cI")
	if err != nil {
		return nil, err
	}
	own := sums{}
	for _, m := range all {
		if err := m.prepare(root, version, all, own); err != nil {
			return nil, err
		}
		p := published{folder: filepath.Join(folder, filepath.FromSlash(m.path()), "@v"), version: version, time: when}
		hash, err := p.write(root, m)
		if err != nil {
			return nil, err
		}
		own[module.Version{Path: m.path(), Version: version}] = hash
	}
	return all, nil
}

// workspace returns the modules of go.work, the required ones first.
func workspace(root, version string) ([]*member, error) {
	data, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", data, nil)
	if err != nil {
		return nil, err
	}
	var all []*member
	for _, use := range work.Use {
		m, err := load(root, path.Clean(use.Path))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	goWork, err := released(work, all, version)
	for _, m := range all {
		if m.dir == "." {
			m.files["go.work"] = goWork
		}
	}
	return sorted(all), err
}

func load(root, dir string) (*member, error) {
	name := filepath.Join(root, dir, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	file, err := modfile.Parse(name, data, nil)
	return &member{dir: dir, file: file, files: map[string][]byte{}}, err
}

// released returns go.work with a replace directive for the version of each module: without
// it a checkout of the release builds only once the version can be downloaded.
func released(work *modfile.WorkFile, all []*member, version string) ([]byte, error) {
	for i, use := range work.Use {
		if err := work.AddReplace(all[i].path(), version, use.Path, ""); err != nil {
			return nil, err
		}
	}
	work.Cleanup()
	return modfile.Format(work.Syntax), nil
}

// sorted puts each module behind those it requires. The go command refuses circles between
// modules that replace each other, so there is none.
func sorted(all []*member) (order []*member) {
	var add func(m *member)
	add = func(m *member) {
		if slices.Contains(order, m) {
			return
		}
		for _, other := range all {
			if other != m && m.requires(other) {
				add(other)
			}
		}
		order = append(order, m)
	}
	for _, m := range all {
		add(m)
	}
	return order
}

func (m *member) requires(other *member) bool {
	return slices.ContainsFunc(m.file.Require, func(r *modfile.Require) bool { return r.Mod.Path == other.path() })
}

// prepare makes the released go.mod and go.sum, and adds the hash of the former to own.
func (m *member) prepare(root, version string, all []*member, own sums) error {
	for _, other := range all {
		if err := m.file.DropReplace(other.path(), ""); err != nil {
			return err
		}
		if m.requires(other) {
			if err := m.file.AddRequire(other.path(), version); err != nil {
				return err
			}
		}
	}
	m.file.Cleanup()
	// `go install PACKAGE@VERSION` refuses a module that has either.
	if len(m.file.Replace)+len(m.file.Exclude) > 0 {
		return fmt.Errorf("%s has a replace or exclude directive that no release may have", m.path())
	}
	goMod, err := m.file.Format()
	if err != nil {
		return err
	}
	hash, err := hashGoMod(goMod)
	if err != nil {
		return err
	}
	own[module.Version{Path: m.path(), Version: version + "/go.mod"}] = hash
	before, err := os.ReadFile(filepath.Join(root, m.dir, "go.sum"))
	if err != nil {
		return err
	}
	m.files["go.mod"], m.files["go.sum"] = goMod, completed(before, m, all, own)
	return nil
}

func hashGoMod(data []byte) (string, error) {
	return dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
}

// completed returns a go.sum with the hashes of those of all that m requires.
func completed(before []byte, m *member, all []*member, own sums) []byte {
	lines := sums{}
	for line := range strings.Lines(string(before)) {
		words := strings.Fields(line)
		lines[module.Version{Path: words[0], Version: words[1]}] = words[2]
	}
	for _, other := range all {
		for v := range lines {
			if v.Path == other.path() {
				delete(lines, v) // of a release before
			}
		}
		for v, hash := range own {
			if v.Path == other.path() && m.requires(other) {
				lines[v] = hash
			}
		}
	}
	return lines.format()
}

// format sorts as the go command does.
func (s sums) format() []byte {
	var order []module.Version
	for v := range s {
		order = append(order, v)
	}
	module.Sort(order)
	var text bytes.Buffer
	for _, v := range order {
		fmt.Fprintf(&text, "%s %s %s\n", v.Path, v.Version, s[v])
	}
	return text.Bytes()
}
