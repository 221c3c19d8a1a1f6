package scaffold

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	countersign "github.com/countersign-dev/countersign"
)

const (
	module = "github.com/countersign-dev/countersign"
	// copied is the folder in the new module that a copy of the sdk is written to.
	copied = "third_party/countersign"
	// unpublished is the version that a folder replaces.
	unpublished = "v0.0.0"
)

// SDK is where the new module's sdk comes from. Make it with [FindSDK] or [SourceSDK].
type SDK struct {
	version string   // of the module; unpublished where a folder replaces it
	replace string   // the folder, as go.mod has it; empty: the version is published
	modules []string // those that a provider compiles, as "path version"
	sum     []byte   // their lines of go.sum
	files   fs.FS    // to be written into the folder; nil: it has its own
}

var released = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)
})

// FindSDK returns the sdk that this program was built with: its published version, else the
// copy of the source that the program carries.
func FindSDK() (SDK, error) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module && dep.Replace == nil && dep.Version != unpublished && released().MatchString(dep.Version) {
				return published(countersign.ProviderSource(), dep.Version, dep.Sum)
			}
		}
	}
	return copyOf(countersign.ProviderSource())
}

// published returns the release of which these are the files. hash is that of go.sum.
func published(files fs.FS, version, hash string) (SDK, error) {
	sdk, err := fromFiles(files)
	if err != nil {
		return SDK{}, err
	}
	mod, err := fs.ReadFile(files, "go.mod")
	sdk.version = version
	sdk.sum = fmt.Appendf(sdk.sum, "%s %s %s\n%[1]s %[2]s/go.mod %[4]s\n", module, version, hash, hashOfMod(mod))
	return sdk, err
}

// copyOf returns an sdk of which the new module gets a copy.
func copyOf(files fs.FS) (SDK, error) {
	sdk, err := fromFiles(files)
	sdk.version, sdk.replace, sdk.files = unpublished, "./"+copied, files
	return sdk, err
}

// SourceSDK returns the sdk in a folder, a clone of the repository.
func SourceSDK(dir string) (SDK, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return SDK{}, err
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || !bytes.Contains(mod, []byte("module "+module+"\n")) {
		return SDK{}, fmt.Errorf("there is no sdk in %s: name the folder of a clone of %s by --sdk", dir, module)
	}
	sdk, err := fromFiles(os.DirFS(dir))
	sdk.version, sdk.replace = unpublished, asPath(dir)
	return sdk, err
}

// requirement is the sdk's lines of go.mod.
func (s SDK) requirement() string {
	var text strings.Builder
	fmt.Fprintf(&text, "require %s %s\n", module, s.version)
	if len(s.modules) > 0 {
		fmt.Fprintf(&text, "\nrequire (\n\t%s // indirect\n)\n", strings.Join(s.modules, " // indirect\n\t"))
	}
	if s.replace != "" {
		fmt.Fprintf(&text, "\nreplace %s => %s\n", module, s.replace)
	}
	return text.String()
}

// release is the version of this program to install in CI.
func (s SDK) release() string {
	if s.replace != "" {
		return "latest"
	}
	return s.version
}

// note is the README's text about the sdk.
func (s SDK) note() string {
	if s.replace == "" {
		return ""
	}
	from, remove := "a clone on this machine. To build on other machines, take a release:", ""
	if s.files != nil {
		from, remove = "["+copied+"]("+copied+"), a copy to commit with your code. To take a release instead:", "    rm -r "+copied+"\n"
	}
	return "\n`go.mod` takes the sdk from " + from + "\n\n" +
		"    go mod edit -dropreplace " + module + "\n    go get " + module + "@latest\n" + remove
}

// asPath quotes a path where go.mod demands it.
func asPath(path string) string {
	if strings.ContainsAny(path, " \t\"'`,()[]{}") || strings.Contains(path, "//") {
		return strconv.Quote(path)
	}
	return path
}
