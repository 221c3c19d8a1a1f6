package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/sdk/languages"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Go is the language of a new provider unless its plan names another.
const Go = "go"

// foreign is a language with a library in sdk/languages.
type foreign struct {
	steps   []string // the commands, with the provider's name as $NAME, that build and try a new provider
	test    string   // the command that fails until the provider has its own CA
	program string   // what the first of them runs
	install string   // how to get that program
}

var foreigners = map[string]foreign{
	"python": {
		steps: []string{
			"python3 -m venv venv", //nolint:dupword // the module and the folder
			"venv/bin/pip install --require-hashes -r requirements.txt",
			"venv/bin/pip install --no-deps --no-build-isolation -e .",
			"countersign provider inspect venv/bin/countersign-provider-$NAME",
		},
		test: "venv/bin/python -m unittest", program: "python3", install: "Python 3.11 or later, with venv",
	},
	"node": {
		steps: []string{"npm ci", "countersign provider inspect ./countersign-provider-$NAME"},
		test:  "npm test", program: "npm", install: "Node.js 20.3 or later, with npm",
	},
	"rust": {
		steps: []string{"cargo build --locked", "countersign provider inspect target/debug/countersign-provider-$NAME"},
		test:  "cargo test --locked", program: "cargo", install: "Rust 1.88 or later",
	},
}

// Languages returns the languages that a plan can name.
func Languages() []string {
	all := []string{Go}
	for name := range foreigners {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// Steps returns the commands to run in the new folder, and what is missing on this machine to run
// them, if anything is.
func (p Plan) Steps() (commands []string, missing string) {
	f, ok := foreigners[p.Lang]
	if !ok {
		binary := "countersign-provider-" + p.Name
		return []string{"go build -o " + binary + " .", "countersign provider inspect ./" + binary}, ""
	}
	for _, step := range f.steps {
		commands = append(commands, strings.ReplaceAll(step, "$NAME", p.Name))
	}
	if _, err := exec.LookPath(f.program); err != nil {
		missing = fmt.Sprintf("%s is not on the PATH: install %s", f.program, f.install)
	}
	return commands, missing
}

// Test returns the command that runs the new provider's tests, which fail until its author has put
// a CA into it.
func (p Plan) Test() string {
	if f, ok := foreigners[p.Lang]; ok {
		return f.test
	}
	return "go test ./..."
}

// checkLanguage refuses an unknown language, and what only a module in Go has.
func (p Plan) checkLanguage() error {
	if p.Lang == Go {
		return nil
	}
	if _, ok := foreigners[p.Lang]; !ok {
		return fmt.Errorf("there is no template for %q: use one of %s; for other languages, see proto/provider/PROTOCOL.md",
			wire.CleanText(p.Lang, ""), strings.Join(Languages(), ", "))
	}
	if p.Module != "" {
		return fmt.Errorf("a provider in %s has no Go module: leave out --module", p.Lang)
	}
	return nil
}

// fillForeign writes the language's example under the provider's name, with a copy of the library
// in the folder countersign-provider.
func (p Plan) fillForeign(dir string) error {
	library, err := fs.Sub(languages.Sources(), p.Lang)
	if err != nil {
		return err
	}
	return fs.WalkDir(library, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(library, name)
		if own, ok := strings.CutPrefix(name, "example/"); ok {
			return errors.Join(err, p.writeOwn(dir, own, text))
		}
		return errors.Join(err, writeFile(filepath.Join(dir, "countersign-provider", filepath.FromSlash(name)), text))
	})
}

// example finds the example's name in it.
var example = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`provider_acme|\bacme\b`)
})

// renamed puts the provider's name in the place of the example's.
func (p Plan) renamed(text string) string {
	return example().ReplaceAllStringFunc(text, func(found string) string {
		if found == "acme" {
			return p.Name
		}
		return "provider_" + strings.ReplaceAll(p.Name, "-", "_") // a module's name in Python
	})
}

// writeOwn writes a file of the example.
func (p Plan) writeOwn(dir, name string, text []byte) error {
	own := p.renamed(name)
	if own == "gitignore" { // as .gitignore, it would count in this repository, too
		own = ".gitignore"
	}
	to := filepath.Join(dir, filepath.FromSlash(own))
	if err := writeFile(to, []byte(p.renamed(string(text)))); err != nil {
		return err
	}
	if strings.HasPrefix(own, "countersign-provider-") {
		return os.Chmod(to, 0o755) //nolint:gosec // a program
	}
	return nil
}
