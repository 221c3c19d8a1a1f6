package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// packedChart returns the path of a chart of the repository's.
func packedChart(t *testing.T) string {
	t.Helper()
	d := &dist{source: released(), out: t.TempDir()}
	d.root = root(t)
	must(t, d.chart())
	return filepath.Join(d.out, "countersign-0.1.0.tgz")
}

func TestChartHasWhatLinksLeadTo(t *testing.T) {
	file, err := os.Open(packedChart(t))
	must(t, err)
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	must(t, err)
	found, from := map[string]string{}, tar.NewReader(unpacked)
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeDir {
			t.Errorf("%s is no file", header.Name)
		}
		text, err := io.ReadAll(from)
		must(t, err)
		found[header.Name] = string(text)
	}
	for name, says := range map[string]string{
		"countersign/files/kustomize/ra/ra.yaml": "lock: ", "countersign/files/alerts.yaml": "alert: ",
		"countersign/templates/ra.yaml": "{{", "countersign/values.yaml": "image:",
	} {
		if !strings.Contains(found[name], says) {
			t.Errorf("%s is %q", name, found[name])
		}
	}
}

func TestChartHasVersionOfRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "Chart.yaml")
	must(t, os.WriteFile(path, []byte("name: x\nversion: 0.1.0\nappVersion: 0.1.0\nkubeVersion: \">=1.29.0-0\"\n"), 0o600))
	must(t, setVersion(path, "1.2.3-rc.1"))
	text, err := os.ReadFile(path)
	must(t, err)
	if want := "name: x\nversion: 1.2.3-rc.1\nappVersion: 1.2.3-rc.1\nkubeVersion: \">=1.29.0-0\"\n"; string(text) != want {
		t.Errorf("got %s", text)
	}
	must(t, os.WriteFile(path, []byte("version: \"1\"\n"), 0o600))
	if err := setVersion(path, "1.2.3"); err == nil || !strings.Contains(err.Error(), "has 1 lines with a version") {
		t.Errorf("got %v", err)
	}
}

func TestChartIsTheSameEachTime(t *testing.T) {
	first, second := packedChart(t), packedChart(t)
	a, _, err := sum(first)
	must(t, err)
	if b, _, err := sum(second); err != nil || a != b {
		t.Errorf("%s is not %s: %v", b, a, err)
	}
}
