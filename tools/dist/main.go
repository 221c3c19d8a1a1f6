// Command dist makes what a release has, the same bytes each time: archives, packages, container
// images, the Helm chart, libraries for providers in other languages, single providers with an
// index of them, bills of materials, licences, checksums, provenance and signatures. Run it by
// `make release VERSION=v0.1.0`; see docs/releases.md.
//
// The programs are built of modules, as `go install PROGRAM@VERSION` does, so that the go command
// records the version and every user can build the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const house = "github.com/countersign-dev/countersign"

func main() {
	log.SetFlags(0)
	log.SetPrefix("dist: ")
	version := flag.String("version", "", "the release, such as v0.1.0")
	platforms := flag.String("platforms", strings.Join(allPlatforms, ","), "what to build for")
	modules := flag.String("modules", "", "the folder of make release NAME=modules, with this version")
	out := flag.String("out", "dist", "where to put it all")
	work := flag.String("work", ".cache/dist", "what is kept for the next time")
	key := flag.String("key", "", "file with a minisign secret key without password; without it, nothing is signed")
	libraries := flag.String("libraries", "", "only make the libraries of other languages, in this folder")
	registry := flag.String("push", "", "only push the images and the chart in -out to this registry, such as registry.example.org/countersign")
	flag.Parse()
	if flag.NArg() > 0 { // flags behind it were not read: -key, -out
		log.Fatalf("unexpected %q: platforms, such as linux/amd64,linux/arm64, are separated by commas, without spaces", flag.Arg(0))
	}
	if *libraries != "" {
		if err := packLibraries("../..", *version, *libraries, time.Unix(1e9, 0)); err != nil {
			log.Fatal(err)
		}
		return
	}
	if *registry != "" {
		if err := push(*out, *registry, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := run(*version, *platforms, *modules, *out, *work, *key); err != nil {
		log.Fatal(err)
	}
}

func run(version, platforms, modules, out, work, key string) error {
	source, err := sourceOf(".", version)
	if err != nil {
		return err
	}
	signer, err := readSigner(key)
	if err != nil {
		return err
	}
	if signer != nil && source.modified {
		return errors.New("git has no copy of what this tree holds, so it is not signed: commit first")
	}
	list, err := parsePlatforms(platforms)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	builder, err := newBuilder(source, modules, work)
	if err != nil {
		return err
	}
	d := &dist{source: source, signer: signer, out: out, builder: builder}
	return d.make(list)
}

// dist is one release.
type dist struct {
	source
	signer  *signer
	out     string
	builder *builder
	index   index
}

func (d *dist) make(platforms []platform) error {
	if err := d.stageAll(platforms); err != nil {
		return err
	}
	for _, p := range platforms {
		if err := errors.Join(d.archive(p), d.packages(p), d.singles(p)); err != nil {
			return err
		}
	}
	if err := errors.Join(d.images(platforms), d.chart(), d.libraries(), d.writeIndex()); err != nil {
		return err
	}
	return d.finish(platforms)
}

// name is the start of a file's name in a release.
func (d *dist) name(what string, p platform) string {
	return fmt.Sprintf("%s_%s_%s_%s", what, d.version, p.os, p.arch)
}

func (d *dist) stage(p platform) string {
	return filepath.Join(d.out, "stage", p.os+"_"+p.arch)
}
