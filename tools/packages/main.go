// Command packages packs a tree that scripts/stage laid out into deb and rpm packages: one for each
// of [parts]. Two runs with one SOURCE_DATE_EPOCH make the same bytes.
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
	"strconv"
	"time"

	_ "github.com/goreleaser/nfpm/v2/deb"
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
	if err := run(*stage, *version, *to, "deb", "rpm"); err != nil {
		log.Fatal(err)
	}
}

func run(stage, version, to string, formats ...string) error {
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
	work, err := os.MkdirTemp("", "countersign-packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r := release{stage: stage, work: work, version: version, arch: arch, to: to, formats: formats, at: time.Unix(epoch, 0).UTC()}
	files, err := r.sort()
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := r.pack(p, files[p.name]); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
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
