// Package scaffold creates the project of a new provider, for "provider new": call [Write]. It
// needs no network: this program carries the sdk, the libraries of other languages, and the
// versions of their dependencies.
package scaffold

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Plan describes the project to create.
type Plan struct {
	Name   string // of the provider: 1 to 63 of a-z, 0-9 and -. Required.
	Dir    string // the folder to create. Default: countersign-provider-<Name>.
	Module string // Default: example.com/countersign-provider-<Name>.
	SDK    SDK
	Lang   string // One of [Languages]. Default: Go. Only a module in Go has Module and SDK.
}

//go:embed all:template
var templates embed.FS

// files are what is written, by the name of their template.
var files = map[string]string{
	"main.go.tmpl": "main.go", "authority.go.tmpl": "authority.go", "ca_test.go.tmpl": "ca_test.go", "main_test.go.tmpl": "main_test.go", "go.mod.tmpl": "go.mod",
	"README.md.tmpl": "README.md", "SETTINGS.md.tmpl": "SETTINGS.md", "kit.yaml.tmpl": "kit.yaml", "ci.yml.tmpl": ".github/workflows/ci.yml", "gitignore.tmpl": ".gitignore",
}

var modulePath = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9][a-z0-9._~-]*(/[A-Za-z0-9][A-Za-z0-9._~-]*)*$`)
})

// withDefaults returns the plan, whole, or what is wrong with it.
func (p Plan) withDefaults() (Plan, error) {
	if !wire.ValidName(p.Name) {
		return p, fmt.Errorf("%q is not a valid provider name: use 1 to 63 of a-z, 0-9 and -, not starting with -", wire.CleanText(p.Name, ""))
	}
	p.Lang = cmp.Or(p.Lang, Go)
	if err := p.checkLanguage(); err != nil {
		return p, err
	}
	file := "countersign-provider-" + p.Name
	p.Dir = cmp.Or(p.Dir, file)
	p.Module = cmp.Or(p.Module, "example.com/"+file)
	if len(p.Module) > 255 || !modulePath().MatchString(p.Module) {
		return p, fmt.Errorf("%q is not a module path: use one like example.com/%s", wire.CleanText(p.Module, ""), file)
	}
	return p, nil
}

// Write makes the folder and everything in it, or nothing. A folder that is there is
// left alone. It returns the folder.
func Write(p Plan) (string, error) {
	p, err := p.withDefaults()
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(p.Dir); !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s already exists: choose another folder with --dir", p.Dir)
	}
	parent := filepath.Dir(p.Dir)
	if err := os.MkdirAll(parent, 0o755); err != nil { //nolint:gosec // source code, readable like the folder
		return "", err
	}
	half, err := os.MkdirTemp(parent, ".countersign-new-")
	if err != nil {
		return "", err
	}
	err = errors.Join(p.fill(half), os.Chmod(half, 0o755)) //nolint:gosec // see above
	if err == nil {
		err = os.Rename(half, p.Dir)
	}
	if err != nil {
		_ = os.RemoveAll(half)
		return "", err
	}
	return p.Dir, nil
}

func (p Plan) fill(dir string) error {
	if p.Lang != Go {
		return p.fillForeign(dir)
	}
	// No text/template: it calls methods by their names, and has the linker keep all.
	values := strings.NewReplacer("<< name >>", p.Name, "<< module >>", p.Module, "<< sdk >>", p.SDK.requirement(), "<< note >>", p.SDK.note(), "<< release >>", p.SDK.release())
	var errs []error
	for from, to := range files {
		text, err := templates.ReadFile("template/" + from)
		errs = append(errs, err, writeFile(filepath.Join(dir, to), []byte(values.Replace(string(text)))))
	}
	errs = append(errs, writeFile(filepath.Join(dir, "go.sum"), p.SDK.sum))
	if p.SDK.files != nil {
		errs = append(errs, p.SDK.writeCopy(filepath.Join(dir, filepath.FromSlash(copied))))
	}
	return errors.Join(errs...)
}

func writeFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // see Write
		return err
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // see Write
}
