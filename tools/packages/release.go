package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
)

// release is what the packages are made of.
type release struct {
	stage, work   string // work is a folder for what is made on the way
	version, arch string
	to            string
	formats       []string // deb, rpm
	at            time.Time
}

// sort returns the files of the stage by the part that they are for, without the lock file.
func (r release) sort() (map[string][]string, error) {
	found := map[string][]string{}
	err := filepath.WalkDir(r.stage, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		below, err := filepath.Rel(r.stage, path)
		if err == nil && below != providerFolder+"countersign.lock" && !strings.HasPrefix(below, licences) {
			name := owner(below)
			found[name] = append(found[name], below)
		}
		return err
	})
	return found, err
}

// pack makes the packages of a part; one whose programs are not in the stage is left out.
func (r release) pack(p part, below []string) error {
	programs := slices.DeleteFunc(slices.Clone(below), func(file string) bool {
		folder := filepath.Dir(file) + "/"
		return folder != "bin/" && folder != providerFolder || strings.HasSuffix(file, ".minisig")
	})
	if len(programs) == 0 {
		return nil
	}
	lock, err := r.splitLock(p)
	if err != nil {
		return err
	}
	ofModules, err := r.licencesOf(programs)
	if err != nil {
		return err
	}
	for _, format := range r.formats {
		info, err := r.describe(p, format)
		if err != nil {
			return err
		}
		if info.Contents, err = r.contents(p, format, below, ofModules, lock); err != nil {
			return err
		}
		if err := r.write(info, format); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

func (r release) write(info *nfpm.Info, format string) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	// Where releases are served, a "~" of v0.1.0-rc.1 becomes another character.
	name := filepath.Join(r.to, strings.ReplaceAll(packager.ConventionalFileName(info), "~", "-"))
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := packager.Package(info, file); err != nil {
		return err
	}
	fmt.Println(name)
	return file.Close()
}

// licencesOf returns the licences in the stage that programs need: our own, Go's, and those of the
// modules that are linked.
func (r release) licencesOf(programs []string) (found []string, err error) {
	folders := map[string]bool{".": true, "go": true}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(r.stage, program))
		if err != nil {
			return nil, err
		}
		for _, module := range info.Deps {
			folders[module.Path] = true
		}
	}
	for folder := range folders {
		entries, err := os.ReadDir(filepath.Join(r.stage, licences, folder))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // our own modules have none; make install has none at all
			return nil, err
		}
		for _, entry := range entries {
			if entry.Type().IsRegular() {
				found = append(found, path.Join(folder, entry.Name()))
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// contents returns what a package holds: files below /usr, and the agent's configuration in /etc.
func (r release) contents(p part, format string, below, ofModules []string, lock string) (files.Contents, error) {
	all := files.Contents{content(lock, "/usr/"+providerFolder+p.lockName(), files.TypeFile, 0o644)}
	for _, file := range below {
		if file == ownLicence && format == "deb" {
			continue // it is the copyright below
		}
		info, err := os.Stat(filepath.Join(r.stage, file))
		if err != nil {
			return nil, err
		}
		all = append(all, content(filepath.Join(r.stage, file), destination(file, format), files.TypeFile, info.Mode().Perm()))
	}
	for _, file := range ofModules {
		all = append(all, content(filepath.Join(r.stage, licences, file), path.Join("/usr/share/licenses", p.name, file), files.TypeFile, 0o644))
	}
	if format == "deb" {
		all = append(all, content(filepath.Join(r.stage, ownLicence), "/usr/share/doc/"+p.name+"/copyright", files.TypeFile, 0o644))
	}
	if p.setUp != nil { // it has a configuration
		all = append(all, content("", "/etc/countersign", files.TypeDir, 0o755))
	}
	if p.name == agentPart {
		all = append(all,
			content(filepath.Join(r.stage, "share/countersign/countersign.yaml"), "/etc/countersign/countersign.yaml", files.TypeConfigNoReplace, 0o644),
			// Where images have it, too, and so configurations name it.
			&files.Content{Source: "providers/countersign.lock", Destination: "/usr/lib/countersign/countersign.lock", Type: files.TypeSymlink})
	}
	return append(all, folders(all)...), nil
}

// folders returns those that only our packages use: rpm removes no others than a package lists.
func folders(all files.Contents) (own files.Contents) {
	seen := map[string]bool{}
	for _, file := range all {
		for at := path.Dir(file.Destination); strings.Contains(at, "/countersign"); at = path.Dir(at) {
			if !seen[at] && strings.HasPrefix(at, "/usr/") {
				own = append(own, content("", at, files.TypeDir, 0o755))
			}
			seen[at] = true
		}
	}
	return own
}

// destination is where a file of the stage is installed.
func destination(below, format string) string {
	if dir, name := filepath.Split(below); format == "deb" && dir == "share/zsh/site-functions/" {
		return "/usr/share/zsh/vendor-completions/" + name
	}
	return "/usr/" + below
}

func content(from, to, kind string, mode os.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: to, Type: kind, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode}}
}
