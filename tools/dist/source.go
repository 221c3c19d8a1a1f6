package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// source is what a release is made of.
type source struct {
	root, version string
	commit        string
	modified      bool // the tree differs from the commit
	time          time.Time
	toolchain     string // such as go1.27.1
}

func sourceOf(dir, version string) (s source, err error) {
	if semver.Canonical(version) != version || version == "" {
		return s, fmt.Errorf("%q is no version: use one such as v0.1.0", version)
	}
	s.version = version
	if s.root, err = output(dir, "git", "rev-parse", "--show-toplevel"); err != nil {
		return s, err
	}
	if s.commit, err = output(dir, "git", "rev-parse", "HEAD"); err != nil {
		return s, err
	}
	when, err := output(dir, "git", "log", "-1", "--format=%cI")
	if err != nil {
		return s, err
	}
	if s.time, err = time.Parse(time.RFC3339, when); err != nil {
		return s, err
	}
	s.time = s.time.UTC()
	status, err := output(dir, "git", "status", "--porcelain")
	if err != nil {
		return s, err
	}
	s.modified = status != ""
	s.toolchain, err = toolchain(filepath.Join(s.root, "go.work"))
	return s, err
}

// toolchain is the Go that the workspace asks for, and the one that runs must be.
func toolchain(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	work, err := modfile.ParseWork(file, text, nil)
	if err != nil {
		return "", err
	}
	if work.Toolchain == nil {
		return "", errors.New("go.work names no toolchain")
	}
	got, err := output(".", "go", "env", "GOVERSION")
	if err == nil && got != work.Toolchain.Name {
		err = fmt.Errorf("this is %s, and a release is built with %s", got, work.Toolchain.Name)
	}
	return work.Toolchain.Name, err
}

// output runs a command and returns the first of its output, without the newline at its end.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// platform is what programs are built for.
type platform struct{ os, arch string }

// allPlatforms are those of a release. The servers for Kubernetes are for Linux alone.
var allPlatforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}

func parsePlatforms(list string) (all []platform, err error) {
	for name := range strings.SplitSeq(list, ",") {
		if !slices.Contains(allPlatforms, name) {
			return nil, fmt.Errorf("unknown platform %q: use %s", name, strings.Join(allPlatforms, ", "))
		}
		system, arch, _ := strings.Cut(name, "/")
		all = append(all, platform{system, arch})
	}
	return all, nil
}

func (p platform) String() string { return p.os + "/" + p.arch }

func (p platform) exe() string {
	if p.os == "windows" {
		return ".exe"
	}
	return ""
}
