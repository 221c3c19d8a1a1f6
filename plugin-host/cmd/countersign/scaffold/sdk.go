package scaffold

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/countersign-dev/countersign"

// SDK is where the new module's sdk comes from. Make it with [SourceSDK] or [FindSDK].
type SDK struct {
	Version string // of the module; v0.0.0 where it is replaced by a folder
	Replace string // the folder, as go.mod has it; empty: the version is published
	// Requires are the sdk's own dependencies that a provider compiles, as "path
	// version"; empty where `go mod tidy` has to find them.
	Requires []string
	sum      []byte
}

// requirement is what go.mod says of the sdk.
func (s SDK) requirement() string {
	var text strings.Builder
	fmt.Fprintf(&text, "require %s %s\n", module, s.Version)
	if len(s.Requires) > 0 {
		fmt.Fprintf(&text, "\nrequire (\n\t%s // indirect\n)\n", strings.Join(s.Requires, " // indirect\n\t"))
	}
	if s.Replace != "" {
		fmt.Fprintf(&text, "\n// The sdk is taken from a clone.\nreplace %s => %s\n", module, s.Replace)
	}
	return text.String()
}

// Steps are the commands, each a line, that the new module needs before it builds.
func (s SDK) Steps() string {
	if len(s.Requires) == 0 {
		return "  go mod tidy\n"
	}
	return ""
}

// note is what the README says of it.
func (s SDK) note() string {
	switch {
	case s.Replace != "":
		return "\n`go.mod` takes the sdk from a clone on this machine. To build on other machines, take a release:\n\n" +
			"    go mod edit -dropreplace " + module + "\n    go get " + module + "@latest\n"
	case len(s.Requires) == 0:
		return "\nRun `go mod tidy` first, once.\n"
	}
	return ""
}

// needed are the modules that a provider's build looks at; the test builds one with no
// other.
var needed = []string{
	"github.com/fatih/color", "github.com/golang/protobuf", "github.com/google/jsonschema-go", "github.com/hashicorp/go-hclog",
	"github.com/hashicorp/go-plugin", "github.com/hashicorp/yamux", "github.com/mattn/go-colorable", "github.com/mattn/go-isatty",
	"github.com/oklog/run", "golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
	"google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc", "google.golang.org/protobuf",
}

var released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// FindSDK returns the sdk that this program was built with: its published version, else
// the clone that the program's binary lies in.
func FindSDK() (SDK, error) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module && dep.Replace == nil && released.MatchString(dep.Version) && dep.Version != "v0.0.0" {
				return SDK{Version: dep.Version}, nil
			}
		}
	}
	binary, err := os.Executable()
	if err == nil {
		binary, err = filepath.EvalSymlinks(binary)
	}
	if err != nil {
		return SDK{}, err
	}
	return cloneAround(binary)
}

// cloneAround returns the sdk of the clone that a file lies in: `make build` writes to bin/.
func cloneAround(file string) (SDK, error) {
	for dir := filepath.Dir(file); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if sdk, err := SourceSDK(dir); err == nil {
			return sdk, nil
		}
	}
	return SDK{}, fmt.Errorf("this build has no published sdk version and lies outside of its source: pass --sdk with a clone of %s", module)
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
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return SDK{}, err
	}
	return SDK{Version: "v0.0.0", Replace: asPath(dir), Requires: requires(mod), sum: sum}, nil
}

// asPath quotes a path where go.mod demands it.
func asPath(path string) string {
	if strings.ContainsAny(path, " \t\"'`,()[]{}") || strings.Contains(path, "//") {
		return strconv.Quote(path)
	}
	return path
}

// requires are the needed modules with the versions of a go.mod.
func requires(mod []byte) []string {
	var all []string
	for lines := bufio.NewScanner(bytes.NewReader(mod)); lines.Scan(); {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "require "))
		if len(words) >= 2 && slices.Contains(needed, words[0]) {
			all = append(all, words[0]+" "+words[1])
		}
	}
	slices.Sort(all)
	return all
}
