package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
)

// wholeBefore is the version before which the agent's package had the files of all of them.
const wholeBefore = "0.1.0~"

func (r release) describe(p part, format string) (*nfpm.Info, error) {
	info := &nfpm.Info{
		Name: p.name, Arch: r.arch, Platform: "linux", Version: r.version, MTime: r.at,
		Section: "net", Priority: "optional", License: "Apache-2.0",
		Maintainer:  "The Countersign authors <maintainers@countersign.dev>",
		Homepage:    "https://github.com/countersign-dev/countersign",
		Description: p.summary + "\n" + p.about,
	}
	info.Recommends, info.Suggests = p.recommends, p.suggests
	info.RPM.BuildHost, info.RPM.Summary = "localhost", p.summary
	if p.name == agentPart {
		info.Depends = map[string][]string{"deb": {"passwd"}, "rpm": {"shadow-utils"}}[format]
	} else if !strings.HasPrefix(r.version, "v0.0.") { // not a release
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

func (r release) addScripts(info *nfpm.Info, p part) (err error) {
	if p.setUp != nil {
		info.Scripts.PostInstall, err = r.script(p, p.setUp...)
	}
	if p.name == agentPart {
		info.Scripts.PreRemove, info.Scripts.PostRemove = filepath.Join("scripts", "preremove.sh"), filepath.Join("scripts", "postremove.sh")
	}
	return err
}

// script joins scripts into one, in which $program is the part's name.
func (r release) script(p part, names ...string) (string, error) {
	text := "#!/bin/sh\n# After \"configure OLD-VERSION\" of dpkg, and after 1 (installed) or 2 (upgraded) of rpm.\nset -e\nprogram=" + p.name + "\n"
	for _, name := range names {
		one, err := os.ReadFile(filepath.Join("scripts", name))
		if err != nil {
			return "", err
		}
		text += "\n" + string(one)
	}
	file := filepath.Join(r.work, p.name+".postinstall.sh")
	return file, os.WriteFile(file, []byte(text), 0o644)
}
