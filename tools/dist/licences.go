package main

import (
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
	"golang.org/x/mod/module"
)

// linked returns the modules of others that programs were linked of, by what they record.
func linked(programs []string) ([]module.Version, error) {
	found := map[module.Version]bool{}
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, m := range info.Deps {
			if !own(m.Path) {
				found[module.Version{Path: m.Path, Version: m.Version}] = true
			}
		}
	}
	all := slices.Collect(maps.Keys(found))
	module.Sort(all)
	return all, nil
}

// licenceFile matches the names of files that have to go with what is linked of a module.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright)([.-].*)?$`)

// writeLicences copies the licences of Go, of the modules and our own. One without a licence must
// not be distributed, so that is an error.
func (d *dist) writeLicences(folder string, modules []module.Version) error {
	if err := copyLicences(d.root, folder); err != nil {
		return err
	}
	goroot, err := output(".", "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	if err := copyLicences(goroot, filepath.Join(folder, "go")); err != nil {
		return err
	}
	for _, m := range modules {
		from, err := d.builder.folder(m)
		if err != nil {
			return err
		}
		if err := copyLicences(from, filepath.Join(folder, filepath.FromSlash(m.Path))); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}

// folder is where the module cache has a module.
func (b *builder) folder(m module.Version) (string, error) {
	path, err := module.EscapePath(m.Path)
	if err != nil {
		return "", err
	}
	version, err := module.EscapeVersion(m.Version)
	return filepath.Join(b.modcache, filepath.FromSlash(path)+"@"+version), err
}

func copyLicences(from, to string) error {
	names, err := licencesIn(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := copyFile(filepath.Join(from, name), filepath.Join(to, name), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func licencesIn(folder string) (names []string, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	licensed := false
	for _, entry := range entries {
		if name := entry.Name(); entry.Type().IsRegular() && licenceFile.MatchString(name) && !strings.HasSuffix(name, ".go") {
			names = append(names, name)
			start := strings.ToLower(name)
			licensed = licensed || strings.HasPrefix(start, "licen") || strings.HasPrefix(start, "copying")
		}
	}
	if !licensed {
		return nil, fmt.Errorf("no licence is in %s", folder)
	}
	return names, nil
}

// identified returns the SPDX names of the licences in a folder. A text that is not known leaves
// them out: the text itself goes with the programs in any case.
func identified(folder string) (ids []string, err error) {
	names, err := licencesIn(folder)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		for _, match := range licensecheck.Scan(text).Match {
			if !slices.Contains(ids, match.ID) && !match.IsURL {
				ids = append(ids, match.ID)
			}
		}
	}
	slices.Sort(ids)
	return ids, nil
}
