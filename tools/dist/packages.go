package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// script runs one of the scripts that `make release NAME=packages` and `make install` run.
func (d *dist) script(name string, args ...string) error {
	return d.do(exec.Command(filepath.Join(d.root, "scripts", name), args...))
}

func (d *dist) do(cmd *exec.Cmd) error {
	cmd.Dir = d.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// pages adds manual pages and completion of a stage's programs, which those of this machine print.
// Windows has no use for either.
func (d *dist) pages(p platform, built map[string]string, here string) error {
	if p.os == "windows" {
		return nil
	}
	stage, err := filepath.Abs(d.stage(p))
	if err != nil {
		return err
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(built)), func(name string) bool { return strings.HasPrefix(name, providerPrefix) })
	return d.script("pages", append([]string{here, stage}, names...)...)
}

// packages makes the deb and rpm packages of a stage for Linux. nfpm stays out of this module: its
// modules are many.
func (d *dist) packages(p platform) error {
	if p.os != "linux" {
		return nil
	}
	out, err := filepath.Abs(d.out)
	if err != nil {
		return err
	}
	stage, err := filepath.Abs(d.stage(p))
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "countersign-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := d.script("stage", stage, temp); err != nil {
		return err
	}
	cmd := exec.Command("go", "run", "-C", "tools/packages", "-trimpath", ".", "-stage", temp, "-version", d.version, "-to", out)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "SOURCE_DATE_EPOCH="+strconv.FormatInt(d.time.Unix(), 10))
	return d.do(cmd)
}
