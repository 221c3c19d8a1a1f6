package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// builder builds programs of the modules in a GOPROXY folder. It has a module cache of its own: a
// version that is not published must not get into the user's. What that one holds of others is
// taken from there, and the compiler's cache is the user's.
type builder struct {
	source
	gopath, modcache string
	env              []string
	packages         map[string][]string // by the folder of their module
	known            map[string]bool     // lines of our modules' go.sum files
}

func newBuilder(s source, modules, work string) (*builder, error) {
	work, err := filepath.Abs(work)
	if err != nil {
		return nil, err
	}
	b := &builder{source: s, gopath: filepath.Join(work, "gopath"), modcache: filepath.Join(work, "modules"), known: map[string]bool{}}
	values, err := output(".", "go", "env", "GOCACHE", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	user := strings.Split(values, "\n")
	modules, err = filepath.Abs(modules)
	if err != nil {
		return nil, err
	}
	b.env = append(withoutGo(os.Environ()),
		"GOENV=off", "GOTOOLCHAIN=local", "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-trimpath -tags=grpcnotrace -modcacherw -buildvcs=false",
		"GODEBUG=goindex=0", // the go command remembers what a version's packages are, over forgetOwn
		"GOPATH="+b.gopath, "GOMODCACHE="+b.modcache, "GOCACHE="+user[0],
		"GOSUMDB=off", // checkSums instead
		"GOPROXY=file://"+modules+",file://"+user[1]+"/cache/download,"+user[2])
	if err := b.forgetOwn(); err != nil {
		return nil, err
	}
	if err := b.readSums(); err != nil {
		return nil, err
	}
	return b, b.findPackages()
}

// withoutGo leaves out what changes the bytes of a program, such as GOAMD64.
func withoutGo(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "GO") && !strings.HasPrefix(v, "GOROOT=") })
}

// forgetOwn removes our modules from the cache: this version may have been built before, of
// another tree.
func (b *builder) forgetOwn() error {
	owner := filepath.FromSlash(filepath.Dir(house))
	for _, folder := range []string{filepath.Join(b.modcache, owner), filepath.Join(b.modcache, "cache", "download", owner)} {
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) readSums() error {
	files, err := output(b.root, "git", "ls-files", "go.sum", "*/go.sum", ":!tools")
	if err != nil {
		return err
	}
	for file := range strings.FieldsSeq(files) {
		text, err := os.ReadFile(filepath.Join(b.root, file))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			b.known[strings.TrimSpace(line)] = true
		}
	}
	return nil
}

// findPackages finds the programs: the agent, the servers, and each provider.
func (b *builder) findPackages() error {
	b.packages = map[string][]string{}
	providers, err := filepath.Glob(filepath.Join(b.root, "providers", "*", "cmd", "countersign-provider-*"))
	if err != nil {
		return err
	}
	programs, err := filepath.Glob(filepath.Join(b.root, "cmd", "countersign*"))
	if err != nil {
		return err
	}
	for _, dir := range append(providers, programs...) {
		of := moduleOf(dir)
		name, err := filepath.Rel(b.root, dir)
		if err != nil {
			return err
		}
		b.packages[of] = append(b.packages[of], house+"/"+filepath.ToSlash(name)+"@"+b.version)
	}
	return nil
}

// moduleOf is the next folder above with a go.mod.
func moduleOf(dir string) string {
	for at := dir; at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
	}
	return dir
}

// build builds the programs for a platform and returns their paths by their names.
func (b *builder) build(p platform) (map[string]string, error) {
	built := map[string]string{}
	for _, packages := range b.packages {
		if p.os != "linux" {
			packages = slices.DeleteFunc(slices.Clone(packages), func(name string) bool {
				return strings.Contains(name, "/cmd/countersign-discovery@") || strings.Contains(name, "/cmd/countersign-ra@")
			})
		}
		if len(packages) == 0 {
			continue
		}
		if err := b.install(p, packages); err != nil {
			return nil, err
		}
		for _, name := range packages {
			name = name[strings.LastIndex(name, "/")+1 : strings.LastIndex(name, "@")]
			built[name] = filepath.Join(b.bin(p), name+p.exe())
		}
	}
	for _, path := range built {
		if err := b.checkSums(path); err != nil {
			return nil, err
		}
	}
	return built, nil
}

func (b *builder) install(p platform, packages []string) error {
	// The host hashes a binary at each start, so keep it small.
	cmd := exec.Command("go", append([]string{"install", "-ldflags", "-s -w"}, packages...)...)
	cmd.Env = append(slices.Clip(b.env), "GOOS="+p.os, "GOARCH="+p.arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s for %s: %w\n%s", cmd, p, err, out)
	}
	return nil
}

func (b *builder) bin(p platform) string {
	if p == host() {
		return filepath.Join(b.gopath, "bin")
	}
	return filepath.Join(b.gopath, "bin", p.os+"_"+p.arch)
}

func host() platform { return platform{runtime.GOOS, runtime.GOARCH} }

// checkSums refuses a program with a module whose hash is in no go.sum of the repository: `go
// install` reads none.
func (b *builder) checkSums(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	if info.Main.Version != b.version {
		return fmt.Errorf("%s is of version %s, not %s", path, info.Main.Version, b.version)
	}
	for _, m := range info.Deps {
		if !own(m.Path) && !b.known[m.Path+" "+m.Version+" "+m.Sum] {
			return fmt.Errorf("%s has %s %s %s, which no go.sum has", path, m.Path, m.Version, m.Sum)
		}
	}
	return nil
}

func own(module string) bool { return module == house || strings.HasPrefix(module, house+"/") }
