package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
)

// wholeBefore is the version before which the agent's package had the files of all of them.
const wholeBefore = "0.1.0~"

// compression is that of deb packages; by default, that of nfpm. Tests set none, as it takes a third of
// their CPU time.
var compression string

func (r release) describe(p part, format string) (*nfpm.Info, error) {
	info := &nfpm.Info{
		Name: p.name, Arch: r.arch, Platform: "linux", Version: r.version, MTime: r.at,
		Section: "net", Priority: "optional", License: "Apache-2.0",
		Maintainer:  "The Countersign authors <maintainers@countersign.dev>",
		Homepage:    "https://github.com/countersign-dev/countersign",
		Description: p.summary + "\n" + p.about,
	}
	info.Recommends, info.Suggests = p.recommends, p.suggests
	info.Deb.Compression = compression
	info.RPM.BuildHost, info.RPM.Summary = "localhost", p.summary
	if p.setUp != nil {
		info.Depends = map[string][]string{"deb": {"passwd"}, "rpm": {"shadow-utils"}}[format]
	}
	if p.name != agentPart && !strings.HasPrefix(r.version, "v0.0.") { // not a release
		takeOver(info, format)
	}
	return nfpm.WithDefaults(info), r.addScripts(info, p)
}

// takeOver has a package be installed only beside an agent's package that has none of its files.
func takeOver(info *nfpm.Info, format string) {
	if format == "deb" {
		whole := agentPart + " (<< " + wholeBefore + ")"
		info.Replaces, info.Deb.Breaks = []string{whole}, []string{whole}
		return
	}
	info.Conflicts = []string{agentPart + " < " + wholeBefore}
}

func (r release) addScripts(info *nfpm.Info, p part) error {
	if p.setUp == nil {
		return nil
	}
	var errs [3]error
	info.Scripts.PostInstall, errs[0] = r.script(p, "postinstall", "After \"configure OLD-VERSION\" of dpkg, and after 1 (installed) or 2 (upgraded) of rpm.", p.setUp...)
	info.Scripts.PreRemove, errs[1] = r.script(p, "preremove", "Before \"remove\" of dpkg and 0 of rpm. In an upgrade the program runs on.", "preremove.sh")
	info.Scripts.PostRemove, errs[2] = r.script(p, "postremove", "After \"remove\" and \"purge\" of dpkg and 0 of rpm.", "postremove.sh")
	return errors.Join(errs[:]...)
}

// script joins scripts into one, in which $program is the part's name.
func (r release) script(p part, step, when string, names ...string) (string, error) {
	text := "#!/bin/sh\n# " + when + "\nset -e\nprogram=" + p.name + "\n"
	for _, name := range names {
		one, err := os.ReadFile(filepath.Join("scripts", name))
		if err != nil {
			return "", err
		}
		text += "\n" + string(one)
	}
	file := filepath.Join(r.work, p.name+"."+step+".sh")
	return file, os.WriteFile(file, []byte(text), 0o644)
}
