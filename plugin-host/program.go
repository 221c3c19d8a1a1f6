package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Program is a program of Countersign's that is no provider, as countersign-discovery:
// found and verified as providers are, it is run in place of the process that asks for it.
type Program struct {
	// Name is that of its file, without .exe. Required.
	Name string
	// Dirs are searched in this order; see [DefaultDirs]. Required.
	Dirs []string
	// SHA256 of the file, hex; without it the start is refused unless Dev.
	SHA256 string
	// Dev starts what is not pinned. Default: false.
	Dev bool
	// Log is told what protection is missing. Default: silent.
	Log *slog.Logger
}

// IsProgram tells whether a file of that name can be one of Countersign's programs.
func IsProgram(name string) bool {
	return wire.ValidName(name) && strings.HasPrefix(name, "countersign-") && !strings.HasPrefix(name, prefix)
}

// Find returns the first file of that name, as [Finder.Find] does for providers: one
// that must not be run is an error even where a later folder has another.
func (p Program) Find() (Found, error) {
	if !IsProgram(p.Name) {
		return Found{}, fmt.Errorf("the program %s is none of Countersign's: countersign-<name> is allowed", foreign(p.Name))
	}
	dirs := absoluteOnce(p.Dirs)
	for _, dir := range dirs {
		path := filepath.Join(dir, p.Name+exeSuffix)
		if _, err := os.Lstat(path); err == nil || !missing(err) {
			found := Found{Name: p.Name, Path: path}
			_, found.Refused = inspect(path)
			return found, found.Refused
		}
	}
	return Found{}, fmt.Errorf("%s is not installed: it is in none of %s", p.Name, strings.Join(dirs, ", "))
}

// Verify reads every byte and holds it against SHA256.
func (p Program) Verify() (Found, error) {
	found, b, err := p.open()
	if err != nil {
		return found, err
	}
	return found, b.Close()
}

// Exec verifies the program and runs it in place of this process, with its path as
// args[0]. Where all goes well it does not return; on Windows it returns when the
// program has ended, which it then was a child: an [*exec.ExitError] has the exit code.
func (p Program) Exec(args, env []string) error {
	found, b, err := p.open()
	if err != nil {
		return err
	}
	defer b.Close()
	if p.SHA256 == "" && !p.Dev {
		return fmt.Errorf("%s has no pin; its SHA-256 is %s", found.Path, b.sha256)
	}
	if err := b.unchanged(); err != nil {
		return err
	}
	err = b.replaceProcess(append([]string{found.Path}, args...), env, p.log())
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return refuse(found.Path, "%s", whyNotExecutable(b.file))
	case errors.Is(err, fs.ErrPermission) && mountedNoexec(b.file):
		return refuse(found.Path, "its file system is mounted noexec; move it to another, or mount that one without")
	}
	return err
}

func (p Program) log() *slog.Logger {
	if p.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return p.Log
}

func (p Program) open() (Found, *binary, error) {
	found, err := p.Find()
	if err != nil {
		return found, nil, err
	}
	real, err := inspect(found.Path)
	if err != nil {
		return found, nil, err
	}
	b, err := verify(real, p.SHA256, receipts{log: p.log()})
	return found, b, err
}
