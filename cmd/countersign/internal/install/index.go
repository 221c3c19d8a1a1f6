package install

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/internal/text"
)

// Limits of what an index and its files may be.
const (
	indexFormat  = 1
	maxIndex     = 1 << 20
	maxSignature = 4 << 10
	maxProvider  = 512 << 20
)

// index lists providers by their hashes. Each version of an index has a higher serial.
type index struct {
	Format    int     `json:"format"`
	Serial    int64   `json:"serial"`
	Providers []build `json:"providers"`
}

// build is one provider, packed by gzip in a file beside the index.
type build struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	File    string `json:"file"`
	Size    int64  `json:"size"`   // unpacked
	SHA256  string `json:"sha256"` // unpacked
}

var (
	// Lengths are checked apart: repeated in a pattern, they make each start of the program slower.
	fileName  = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]*\.gz$`)
	sha256Hex = regexp.MustCompile(`^[0-9a-f]+$`)
)

const maxFileName = 203

func parseIndex(content []byte) (index, error) {
	var i index
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields() // it may be a restriction
	if err := decoder.Decode(&i); err != nil {
		return i, fmt.Errorf("invalid index: not JSON of this format: %s", text.Quote(err.Error()))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return i, errors.New("the index has trailing data")
	}
	if i.Format != indexFormat {
		return i, fmt.Errorf("the index has format %d, and this program supports %d: update it", i.Format, indexFormat)
	}
	for _, b := range i.Providers {
		if err := b.check(); err != nil {
			return i, fmt.Errorf("the index: %w", err)
		}
	}
	return i, nil
}

func (b build) check() error {
	if err := errors.Join(verified.CheckName(b.Name), verified.CheckVersion(b.Version)); err != nil {
		return err
	}
	switch {
	case b.Version == "":
		return fmt.Errorf("%s has no version", b.Name)
	case len(b.File) > maxFileName || !fileName.MatchString(b.File):
		return fmt.Errorf("%s has the file %s: use a name that ends with .gz, in no folder", b.Name, text.Quote(b.File))
	case b.Size < 1 || b.Size > maxProvider:
		return fmt.Errorf("%s has %d bytes: 1 to %d are allowed", b.Name, b.Size, maxProvider)
	case len(b.SHA256) != hex.EncodedLen(sha256.Size) || !sha256Hex.MatchString(b.SHA256):
		return fmt.Errorf("%s has no SHA-256 of 64 lower-case hex digits", b.Name)
	}
	return nil
}

// find returns the build for this platform. No version: the only one.
func (i index) find(name, version string) (build, error) {
	var here []build
	var there []string
	for _, b := range i.Providers {
		switch {
		case b.Name != name || version != "" && b.Version != version:
		case b.OS == runtime.GOOS && b.Arch == runtime.GOARCH:
			here = append(here, b)
		default:
			there = append(there, text.Quote(b.OS+"/"+b.Arch))
		}
	}
	switch {
	case len(here) == 1:
		return here[0], nil
	case len(here) > 1:
		return build{}, fmt.Errorf("the index has several builds of %s: name one version, as in %s@%s", ref(name, version), name, here[0].Version)
	case len(there) > 0:
		slices.Sort(there)
		return build{}, fmt.Errorf("the index has no %s for %s/%s, only for %s", ref(name, version), runtime.GOOS, runtime.GOARCH, strings.Join(slices.Compact(there), ", "))
	}
	return build{}, fmt.Errorf("the index has no provider %s", ref(name, version))
}

func ref(name, version string) string {
	if version == "" {
		return name
	}
	return name + "@" + version
}
