// Command api writes down the public API: for each package below sdk and plugin-host, for the
// engine of ra and for discovery a file in api/ with its exported declarations, one on a line, sorted, so that a
// change shows in review. The first line is the package's class: what is promised of it. Run it by `make generate NAME=api`; it needs no network. See lines.go for
// the lines.
package main

import (
	"fmt"
	"go/importer"
	"go/token"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	house  = "github.com/countersign-dev/countersign/"
	folder = "api" // in the root of the repository, where it is run
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// run writes the folder anew: what is gone from the code goes from it, too.
func run() error {
	public, err := publicPackages()
	if err != nil {
		return err
	}
	names := make([]string, len(public))
	for i, path := range public {
		names[i] = strings.TrimPrefix(path, house)
	}
	if err := checkClasses(names); err != nil {
		return err
	}
	exports, err := exportData(public)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for i, path := range public {
		pkg, err := imports.Import(path)
		if err != nil {
			return err
		}
		declarations := append([]string{"# " + string(classes[names[i]])}, lines(pkg)...)
		if err := write(filepath.Join(folder, names[i]+".txt"), declarations); err != nil {
			return err
		}
	}
	return nil
}

// publicPackages returns those that others may import, of all modules of the workspace: nothing is
// promised of what programs are made of.
func publicPackages() (paths []string, err error) {
	all, err := list("-f", "{{.Name}} {{.ImportPath}}", "work")
	for _, line := range all {
		name, path, _ := strings.Cut(line, " ")
		rest := strings.TrimPrefix(path, house)
		if isPublic(rest) && name != "main" {
			paths = append(paths, path)
		}
	}
	return paths, err
}

// isPublic reports whether a package is for others: all of sdk and plugin-host, and of the two
// wings beside them what an embedder builds a server on. Kubernetes and Istio's CA API are for our
// programs alone: their types are client-go's and Istio's, which change with each release of theirs.
func isPublic(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return slices.Contains([]string{"sdk", "plugin-host", "ra", "discovery"}, first) && path != "ra/istioca" && !strings.Contains(path, "internal/")
}

// exportData compiles the packages and returns the file of each, and of all they import.
func exportData(packages []string) (map[string]string, error) {
	all, err := list(append([]string{"-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, packages...)...)
	files := map[string]string{}
	for _, line := range all {
		path, file, _ := strings.Cut(line, " ")
		files[path] = file
	}
	return files, err
}

// list runs go list for one system, so that the files are the same on each.
func list(args ...string) ([]string, error) {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

func write(file string, lines []string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}
