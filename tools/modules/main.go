// Command modules makes a release of the modules in go.work: each go.mod as it is tagged, with
// requirements on the version instead of replace directives, and a folder that serves the
// modules as a GOPROXY.
//
//	modules [-write] VERSION FOLDER
//
// With -write it also writes go.work, each go.mod and each go.sum into the tree and prints the
// git commands that finish the release. Both ways go through the same code, so what is tagged
// is what was tested. See docs/versioning.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	write := flag.Bool("write", false, "write go.work, each go.mod and each go.sum into the tree")
	flag.Parse()
	if err := run(flag.Args(), *write); err != nil {
		log.Fatal("modules: ", err)
	}
}

func run(args []string, write bool) error {
	if len(args) != 2 || args[0] == "" {
		return errors.New("usage: modules [-write] VERSION FOLDER (make release NAME=modules VERSION=v0.1.0)")
	}
	version := args[0]
	folder, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	root, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	released, err := release(root, version, folder)
	if err != nil {
		return err
	}
	if !write {
		fmt.Printf("export GOPROXY=file://%s,$(go env GOPROXY) GONOSUMDB=%s\n", filepath.ToSlash(folder), released[0].path())
		return nil
	}
	return writeBack(os.Stdout, root, version, released)
}

// writeBack writes the files of the release into the tree and prints to w what is left to do.
func writeBack(w io.Writer, root, version string, released []*member) error {
	for _, m := range released {
		for name, content := range m.files {
			if err := os.WriteFile(filepath.Join(root, m.dir, name), content, 0o644); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(w, "git commit --all --message 'release: %s'\n", version)
	for _, m := range released {
		fmt.Fprintln(w, "git tag", m.tag(version))
	}
	fmt.Fprintln(w, "git revert --no-edit HEAD")
	return nil
}
