package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// chart packs the Helm chart as `helm package` does, which follows its symbolic links too, but
// with one time and one order of the files.
func (d *dist) chart() error {
	temp, err := os.MkdirTemp("", "countersign-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := follow(filepath.Join(d.root, "deploy", "helm", "countersign"), temp); err != nil {
		return err
	}
	version := strings.TrimPrefix(d.version, "v")
	if err := setVersion(filepath.Join(temp, "Chart.yaml"), version); err != nil {
		return err
	}
	file := filepath.Join(d.out, "countersign-"+version+".tgz")
	return errors.Join(create(file, func(w io.Writer) error { return tarGz(w, temp, "countersign", d.time) }),
		d.signer.sign(file, "countersign chart "+d.version))
}

// chartVersion matches the chart's own version, and that of the images that it runs.
var chartVersion = regexp.MustCompile(`(?m)^(version|appVersion): \S+$`)

func setVersion(path, version string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if found := len(chartVersion.FindAll(text, -1)); found != 2 {
		return fmt.Errorf("%s has %d lines with a version, not version and appVersion", path, found)
	}
	return writeFile(path, chartVersion.ReplaceAll(text, []byte("${1}: "+version)), 0o644)
}

// follow copies a file, or a folder with all that is in it, and what symbolic links lead to.
func follow(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return copyFile(from, to, 0o644)
	}
	entries, err := os.ReadDir(from)
	for _, entry := range entries {
		err = errors.Join(err, follow(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())))
	}
	return err
}
