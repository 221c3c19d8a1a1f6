// Command packages packs a tree that scripts/stage laid out into a deb and an rpm package. Two
// runs with one SOURCE_DATE_EPOCH make the same bytes.
//
//	packages -stage DIR -version v0.1.0 -to DIR
package main

import (
	"debug/elf"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("packages: ")
	stage := flag.String("stage", "", "`folder` that scripts/stage made")
	version := flag.String("version", "", "`version`, as in v0.1.0")
	to := flag.String("to", "", "`folder` to write to")
	flag.Parse()
	if *stage == "" || *version == "" || *to == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*stage, *version, *to); err != nil {
		log.Fatal(err)
	}
}

func run(stage, version, to string) error {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH is not a number of seconds: %w", err)
	}
	arch, err := archOf(filepath.Join(stage, "bin", "countersign"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := pack(stage, version, arch, format, to, time.Unix(epoch, 0).UTC()); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

// archOf returns what a program is built for, as GOARCH.
func archOf(program string) (string, error) {
	file, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	defer file.Close()
	switch file.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", fmt.Errorf("%s is built for %s, which no package is made for", program, file.Machine)
}

func pack(stage, version, arch, format, to string, at time.Time) error {
	contents, err := contentsOf(stage, format)
	if err != nil {
		return err
	}
	info := describe(version, arch, at)
	info.Contents = contents
	if format == "rpm" { // where it has another name
		info.Depends = []string{"shadow-utils"}
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	// Where releases are served, a "~" of v0.1.0-rc.1 becomes another character.
	path := filepath.Join(to, strings.ReplaceAll(packager.ConventionalFileName(info), "~", "-"))
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := packager.Package(info, file); err != nil {
		return err
	}
	fmt.Println(path)
	return file.Close()
}

func describe(version, arch string, at time.Time) *nfpm.Info {
	info := &nfpm.Info{
		Name: "countersign", Arch: arch, Platform: "linux", Version: version, MTime: at,
		Section: "net", Priority: "optional", License: "Apache-2.0",
		Maintainer:  "The Countersign authors <maintainers@countersign.dev>",
		Homepage:    "https://github.com/countersign-dev/countersign",
		Description: "Certificates from any CA, kept fresh in any proxy or program\nAn agent that gets certificates from any certificate authority, through\nproviders that are plugins, and serves them to Envoy over SDS, to SPIFFE's\nlibraries, and in files. With its providers, the discovery service for many\nclusters and the registration authority for Kubernetes.",
	}
	info.Depends = []string{"passwd"}
	info.Scripts = nfpm.Scripts{
		PostInstall: script("postinstall.sh"), PreRemove: script("preremove.sh"), PostRemove: script("postremove.sh"),
	}
	info.RPM.BuildHost, info.RPM.Summary = "localhost", "Certificates from any CA, kept fresh in any proxy or program"
	return nfpm.WithDefaults(info)
}

func script(name string) string { return filepath.Join("scripts", name) }

// contentsOf returns what a package holds: the tree below /usr, and the configuration in /etc.
func contentsOf(stage, format string) (all files.Contents, err error) {
	err = filepath.WalkDir(stage, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		below, err := filepath.Rel(stage, path)
		switch {
		case err != nil:
		case !entry.IsDir():
			all = append(all, content(path, destination(below, format), files.TypeFile, info.Mode().Perm()))
		case slices.Contains(strings.Split(below, "/"), "countersign"): // rpm removes only folders that it knows to be ours
			all = append(all, content("", destination(below, format), files.TypeDir, 0o755))
		}
		return err
	})
	example := filepath.Join(stage, "share", "countersign", "countersign.yaml")
	return append(all,
		content("", "/etc/countersign", files.TypeDir, 0o755),
		content(example, "/etc/countersign/countersign.yaml", files.TypeConfigNoReplace, 0o644),
		// Where images have it, too, and so configurations name it.
		&files.Content{Source: "providers/countersign.lock", Destination: "/usr/lib/countersign/countersign.lock", Type: files.TypeSymlink},
	), err
}

// destination is where a file of the stage is installed.
func destination(below, format string) string {
	if format == "deb" {
		switch dir, name := filepath.Split(below); {
		case below == "share/doc/countersign/LICENSE":
			return "/usr/share/doc/countersign/copyright"
		case dir == "share/zsh/site-functions/":
			return "/usr/share/zsh/vendor-completions/" + name
		}
	}
	return "/usr/" + below
}

func content(from, to, kind string, mode os.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: to, Type: kind, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode}}
}
