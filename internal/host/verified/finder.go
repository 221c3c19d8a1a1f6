package verified

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/suggest"
	"github.com/countersign-dev/countersign/internal/text"
)

// Search is where to look for providers, as main read it from flags and environment.
// [DefaultDirs] puts the folders in order.
type Search struct {
	ProviderDirs []string // --provider-dir, in the order given
	ProviderPath string   // COUNTERSIGN_PROVIDER_PATH: folders, separated as in PATH
	Executable   string   // the agent's own binary
	DataHome     string   // XDG_DATA_HOME; empty: .local/share below Home
	Home         string   // HOME; empty: no folder of the user's
}

// DefaultDirs returns the folders of s in the order in which they are searched,
// each once: --provider-dir, COUNTERSIGN_PROVIDER_PATH, the folder of the agent's
// own binary, $XDG_DATA_HOME/countersign/providers, lib/countersign/providers beside
// the folder of the agent's own binary, /usr/lib/countersign/providers.
func DefaultDirs(s Search) []string {
	dirs := slices.Clone(s.ProviderDirs)
	dirs = append(dirs, filepath.SplitList(s.ProviderPath)...)
	if s.Executable != "" {
		dirs = append(dirs, filepath.Dir(s.Executable))
	}
	if s.DataHome == "" && s.Home != "" {
		s.DataHome = filepath.Join(s.Home, ".local", "share")
	}
	if s.DataHome != "" {
		dirs = append(dirs, filepath.Join(s.DataHome, "countersign", "providers"))
	}
	if s.Executable != "" && runtime.GOOS != "windows" {
		// Where "make install" and a release's archive put them, as bin/ and lib/.
		dirs = append(dirs, filepath.Join(filepath.Dir(filepath.Dir(s.Executable)), "lib", "countersign", "providers"))
	}
	if runtime.GOOS != "windows" {
		dirs = append(dirs, "/usr/lib/countersign/providers")
	}
	return absoluteOnce(dirs)
}

// absoluteOnce makes dirs absolute and drops empty ones and repeats.
func absoluteOnce(dirs []string) []string {
	var kept []string
	for _, dir := range dirs {
		abs, err := filepath.Abs(dir)
		if dir != "" && err == nil && !slices.Contains(kept, abs) {
			kept = append(kept, abs)
		}
	}
	return kept
}

// Finder looks for provider binaries and runs none. It keeps no state: the next call
// finds what was installed in between.
type Finder struct {
	Dirs []string // in order of search; the first that has a name wins
}

// Found is one file with the name of a provider.
type Found struct {
	Name       string // of the provider: the file is countersign-provider-<Name>
	Version    string // after the @ of the file's name; empty: there is none
	Path       string // as found; symbolic links are not resolved
	ShadowedBy string // Path of the one used instead; empty: this one is used
	Refused    error  // why it must not run; nil: it may
}

// SHA256 reads the file and returns its hash in lower-case hex.
func (f Found) SHA256() (string, error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return hashBeside(file, nil)
}

// Verify reads every byte of the file and compares it with pin.
func (f Found) Verify(pin string) error {
	b, err := Open(f.Path, pin, Receipts{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return b.Close()
}

// NotFoundError means that no folder has a provider of that name.
type NotFoundError struct {
	Name      string
	Version   string   // empty: the file without one
	Dirs      []string // that were searched
	Installed []string // such as acme or acme@1.2.0
}

// Error names what is missing, the folders and what is installed, and suggests the nearest name.
// If only files with a version are installed, it explains how to select one.
func (e *NotFoundError) Error() string {
	dirs := cmp.Or(strings.Join(e.Dirs, ", "), "any folder")
	installed := cmp.Or(strings.Join(e.Installed, ", "), "none")
	message := fmt.Sprintf("provider %q is not installed: no %s in %s; installed: %s",
		ref(e.Name, e.Version), BinaryName(e.Name, e.Version), dirs, installed)
	for _, other := range e.Installed {
		if e.Version == "" && strings.HasPrefix(other, e.Name+"@") {
			return message + "; to run a version, lock it: countersign provider lock " + other
		}
	}
	if meant := suggest.Word(e.Name, e.Installed); meant != "" && e.Version == "" {
		return message + fmt.Sprintf("; did you mean %q?", meant)
	}
	return message
}

// RefusedError is why a file must not run.
type RefusedError struct {
	Path   string
	Reason string
}

// Error names the file and the reason.
func (e *RefusedError) Error() string { return e.Path + " is refused: " + e.Reason }

// Refuse makes a [RefusedError].
func Refuse(path, format string, args ...any) error {
	return &RefusedError{Path: path, Reason: fmt.Sprintf(format, args...)}
}

// Find returns the first provider of that name. If that one must not run, it returns a
// [*RefusedError] even if a later folder has another: an attacker who spoils the first file
// must not choose what runs.
func (f Finder) Find(name string) (Found, error) { return f.FindVersion(name, "") }

// FindVersion is Find for countersign-provider-<name>@<version>, or for the file without
// a version if version is empty.
func (f Finder) FindVersion(name, version string) (Found, error) {
	if err := errors.Join(CheckName(name), CheckVersion(version)); err != nil {
		return Found{}, err
	}
	if path, ok := f.first(BinaryName(name, version)); ok {
		return inspected(Found{Name: name, Version: version, Path: path})
	}
	return Found{}, f.notFound(name, version)
}

// FindProgram is Find for one of Countersign's programs other than a provider, such as
// countersign-discovery.
func (f Finder) FindProgram(name string) (Found, error) {
	if !IsProgram(name) {
		return Found{}, fmt.Errorf("%s is not a Countersign program: use countersign-<name>", text.Quote(name))
	}
	if path, ok := f.first(name + exeSuffix); ok {
		return inspected(Found{Name: name, Path: path})
	}
	return Found{}, fmt.Errorf("%s is not installed: not found in %s", name, strings.Join(absoluteOnce(f.Dirs), ", "))
}

// first returns the first path of that file name, readable or not.
func (f Finder) first(name string) (path string, ok bool) {
	for _, dir := range absoluteOnce(f.Dirs) {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil || !missing(err) {
			return path, true
		}
	}
	return "", false
}

func inspected(found Found) (Found, error) {
	_, found.Refused = inspect(found.Path)
	return found, found.Refused
}

func (f Finder) notFound(name, version string) error {
	e := &NotFoundError{Name: name, Version: version, Dirs: absoluteOnce(f.Dirs)}
	for _, found := range f.List() {
		if found.ShadowedBy == "" {
			e.Installed = append(e.Installed, ref(found.Name, found.Version))
		}
	}
	slices.Sort(e.Installed)
	return e
}

// List returns every file with the name of a provider, in search order, including
// shadowed and refused ones.
func (f Finder) List() []Found {
	var all []Found
	first := map[string]string{}
	for _, dir := range absoluteOnce(f.Dirs) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // missing or unreadable: Find reports it if it matters
		}
		for _, entry := range entries {
			name, version, ok := ParseBinaryName(entry.Name())
			if !ok {
				continue
			}
			found := Found{Name: name, Version: version, Path: filepath.Join(dir, entry.Name()), ShadowedBy: first[entry.Name()]}
			first[entry.Name()] = cmp.Or(first[entry.Name()], found.Path)
			if found.Refused = errors.Join(CheckName(name), CheckVersion(version)); found.Refused == nil {
				_, found.Refused = inspect(found.Path)
			}
			all = append(all, found)
		}
	}
	return all
}

func missing(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, errNotFolder)
}

// inspect checks that the file at path may run and returns its path without symbolic
// links. That is the path to open, so that a link cannot be changed in between.
func inspect(path string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", Refuse(path, "cannot read its folder: %v%s", err, denied(err))
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", Refuse(path, "cannot read it: %v%s", err, denied(err))
	}
	if !strings.HasPrefix(real, dir+string(filepath.Separator)) {
		return "", Refuse(path, "symbolic link to %s, outside its folder; put the file itself there", real)
	}
	if err := checkFolder(path, filepath.Dir(real)); err != nil {
		return "", err
	}
	info, err := os.Lstat(real)
	if err != nil {
		return "", Refuse(path, "cannot read it: %v", err)
	}
	return real, checkFile(path, info)
}

// denied returns what to change if a folder of the search may not be read. It is not passed over: a
// program that cannot be seen there may be meant to shadow a later one.
func denied(err error) string {
	if !errors.Is(err, os.ErrPermission) {
		return ""
	}
	return "; let this user read the folder, or search another one: see HOME, XDG_DATA_HOME, COUNTERSIGN_PROVIDER_PATH and provider_dirs"
}

// CheckFile returns why the file at path must not run, by the type, owner and mode of the
// file and its folders. It does not read the content.
func CheckFile(path string) error {
	_, err := inspect(path)
	return err
}
