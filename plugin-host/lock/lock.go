// Package lock reads and writes the lock file, which pins the builds of providers that an
// agent may run by their SHA-256. [Read] refuses a file that anyone but root and this user
// could have written; [Lock.Write] writes one.
//
// The commands of countersign call it, and so can an embedder, to take [Provider.SHA256]
// for an entry. It has no goroutines and no state.
//
// The file is JSON:
//
//	{"format": 1, "providers": [{"name": "acme", "version": "1.2.0", "protocol": 1,
//	  "os": "linux", "arch": "amd64", "file": "countersign-provider-acme", "sha256": "…",
//	  "secret_settings": ["/login/password"], "address_settings": [{"setting": "url", "form": "url"}]}],
//	 "programs": [{"name": "countersign-discovery", "os": "linux", "arch": "amd64", "sha256": "…"}]}
package lock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/internal/host/address"
	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// FileName is the default name of a lock file.
const FileName = "countersign.lock"

const (
	format  = 1
	maxFile = 1 << 20
)

// Lock is the content of a lock file. It is not safe for concurrent use.
type Lock struct {
	Format int `json:"format"`
	// Providers are sorted by name, os and arch, and have one entry for each: of several
	// installed versions, one is pinned.
	Providers []Provider `json:"providers"`
	// Programs of Countersign other than providers, in the same order.
	Programs []Program `json:"programs,omitempty"`
}

// Provider is one build of a provider.
type Provider struct {
	Name string `json:"name"`
	// Version that it reported when it was locked; never empty in a file.
	Version string `json:"version"`
	// Protocol version that it and the host negotiated.
	Protocol int `json:"protocol"`
	// OS and Arch that it is built for, as GOOS and GOARCH.
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// File is its file name, in whichever folder: countersign-provider-<name> or
	// countersign-provider-<name>@<version>.
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // 64 hex digits in lower case
	// SecretSettings are JSON Pointers to the settings that the provider's schema marks as
	// secret, with * for any name or index. Empty: none is. Nil: unknown, so each may be.
	SecretSettings []string `json:"secret_settings,omitzero"`
	// AddressSettings are the settings that the provider's schema marks as the CA's address, in
	// the order in which an address is tried. Empty: it takes none. Nil: unknown.
	AddressSettings []AddressSetting `json:"address_settings,omitzero"`
}

// AddressSetting is a setting that holds the address of the CA.
type AddressSetting struct {
	Setting string `json:"setting"` // its name
	// Form of the address: host:port, path, url or text. An unknown one counts as text.
	Form string `json:"form"`
	// Pattern is an unanchored regular expression that the setting matches. Default: any.
	Pattern string `json:"pattern,omitempty"`
}

// FileVersion is the version in its file name; empty: none.
func (p Provider) FileVersion() string {
	_, version, _ := verified.ParseBinaryName(p.File)
	return version
}

// Of returns the build of a provider for a platform.
func (l *Lock) Of(name, goos, arch string) (Provider, bool) {
	return find(l.Providers, key{name, goos, arch})
}

// Put adds a build or replaces the one of that name and platform.
func (l *Lock) Put(p Provider) { put(&l.Providers, p) }

// Program is one build of a program other than a provider; Name is its file name.
type Program struct {
	Name   string `json:"name"`
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	SHA256 string `json:"sha256"`
}

// Program returns the build of a program for a platform.
func (l *Lock) Program(name, goos, arch string) (Program, bool) {
	return find(l.Programs, key{name, goos, arch})
}

// PutProgram adds a build or replaces the one of that name and platform.
func (l *Lock) PutProgram(p Program) { put(&l.Programs, p) }

// key identifies a build: its name, GOOS and GOARCH.
type key [3]string

func (p Provider) key() key { return key{p.Name, p.OS, p.Arch} }
func (p Program) key() key  { return key{p.Name, p.OS, p.Arch} }

type build interface{ key() key }

func find[B build](all []B, of key) (found B, ok bool) {
	i := slices.IndexFunc(all, func(b B) bool { return b.key() == of })
	if i < 0 {
		return found, false
	}
	return all[i], true
}

// put adds a build, or replaces the one with its key, in order.
func put[B build](all *[]B, b B) {
	*all = append(slices.DeleteFunc(*all, func(other B) bool { return other.key() == b.key() }), b)
	slices.SortFunc(*all, func(a, b B) int {
		x, y := a.key(), b.key()
		return slices.Compare(x[:], y[:])
	})
}

// Error means that a lock file cannot be used.
type Error struct {
	Path string
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("lock file %s: %v", e.Path, e.Err) }

// Unwrap implements [errors.Unwrap].
func (e *Error) Unwrap() error { return e.Err }

// Read reads and checks a lock file. The error is [os.ErrNotExist] if there is none.
func Read(path string) (*Lock, error) {
	l, err := read(path)
	if err != nil {
		return nil, &Error{path, err}
	}
	return l, nil
}

func read(path string) (*Lock, error) {
	file, err := openTrusted(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := safefile.ReadAll(file, "it", maxFile)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

func parse(text []byte) (*Lock, error) {
	var l Lock
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // an unknown field may be a restriction
	if err := decoder.Decode(&l); err != nil {
		return nil, fmt.Errorf("not a lock file (%s); create it again with `countersign provider lock`", wire.CleanText(err.Error(), ""))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("trailing data; create it again with `countersign provider lock`")
	}
	return &l, l.check()
}

var sha256Hex = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{64}$`)
})

func (l *Lock) check() error {
	if l.Format != format {
		return fmt.Errorf("unsupported format %d, want %d; create it again with `countersign provider lock`", l.Format, format)
	}
	var errs []error
	seen := map[[3]string]bool{}
	once := func(name, goos, arch string) {
		key := [3]string{name, goos, arch}
		if seen[key] {
			errs = append(errs, fmt.Errorf("duplicate entry %q for %s/%s", wire.CleanText(name, ""), wire.CleanText(goos, ""), wire.CleanText(arch, "")))
		}
		seen[key] = true
	}
	for _, p := range l.Providers {
		once(p.Name, p.OS, p.Arch)
		errs = append(errs, p.check())
	}
	clear(seen) // a provider may have the name of a program, with another file
	for _, p := range l.Programs {
		once(p.Name, p.OS, p.Arch)
		errs = append(errs, p.check())
	}
	return errors.Join(errs...)
}

func (p Program) check() error {
	if !verified.IsProgram(p.Name) {
		return fmt.Errorf("%q is not a Countersign program: use countersign-<name>", wire.CleanText(p.Name, ""))
	}
	return checkBuild(p.Name, p.OS, p.Arch, p.SHA256)
}

func checkBuild(name, goos, arch, sum string) error {
	switch {
	case !sha256Hex().MatchString(sum):
		return fmt.Errorf("invalid sha256 of %q: %q; use 64 lower-case hex digits", name, wire.CleanText(sum, ""))
	case goos == "" || arch == "":
		return fmt.Errorf("%q has no os or no arch", name)
	}
	return nil
}

func (p Provider) check() error {
	name, version, ok := verified.ParseBinaryName(p.File)
	switch {
	case !wire.ValidName(p.Name):
		return fmt.Errorf("invalid provider name %q: use 1 to 63 of a-z, 0-9 and -, not starting with -", wire.CleanText(p.Name, ""))
	case !ok || name != p.Name || verified.BinaryName(name, version) != p.File:
		return fmt.Errorf("invalid file of %q: %q; use %s or %s", p.Name, wire.CleanText(p.File, ""),
			verified.BinaryName(p.Name, ""), verified.BinaryName(p.Name, "VERSION"))
	case p.Version == "": // what signs it names its version
		return fmt.Errorf("%q has no version; lock it again with `countersign provider lock`", p.Name)
	}
	if err := checkBuild(p.Name, p.OS, p.Arch, p.SHA256); err != nil {
		return err
	}
	return errors.Join(p.checkSecrets(), p.checkAddresses())
}

func (p Provider) checkAddresses() error {
	if len(p.AddressSettings) > address.Max {
		return fmt.Errorf("%q has %d address settings, %d are allowed", p.Name, len(p.AddressSettings), address.Max)
	}
	for _, one := range p.AddressSettings {
		if one.Setting == "" {
			return fmt.Errorf("%q has an address setting without a name", p.Name)
		}
	}
	return nil
}

func (p Provider) checkSecrets() error {
	if len(p.SecretSettings) > reference.MaxPaths {
		return fmt.Errorf("%q has %d secret settings, %d are allowed", p.Name, len(p.SecretSettings), reference.MaxPaths)
	}
	for _, pointer := range p.SecretSettings {
		if !strings.HasPrefix(pointer, "/") {
			return fmt.Errorf("%q has an invalid secret setting %q: not a JSON Pointer", p.Name, wire.CleanText(pointer, ""))
		}
	}
	return nil
}

// Write replaces the file atomically; its mode is 0644.
func (l *Lock) Write(path string) error {
	l.Format = format
	text, err := json.MarshalIndent(l, "", "  ")
	if err == nil {
		err = replace(path, append(text, '\n'))
	}
	if err != nil {
		return &Error{path, err}
	}
	return nil
}

func replace(path string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
