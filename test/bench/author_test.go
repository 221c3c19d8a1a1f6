package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// author measures what somebody waits for who writes a provider: from `provider new` to a binary
// that passes the suite, and his tests with and without a build cache. The modules are in the
// module cache, and nothing is downloaded.
func (b *bench) author() error {
	fmt.Println("\n| the author of a provider waits | time |\n|---|---|")
	dir, cache := filepath.Join(b.dir, "countersign-provider-acme"), filepath.Join(b.dir, "gocache")
	run := func(name string, args ...string) error { return authorRun(dir, cache, name, args...) }
	program := filepath.Join(b.root, "countersign")
	const second = "countersign-provider-second"
	test := []string{"go", "test", "./..."}
	if err := authorRun(b.dir, cache, program, "provider", "new", "acme"); err != nil {
		return err
	}
	for _, wait := range []struct {
		what  string
		steps [][]string
	}{
		{"`go test` of a new provider, with an empty build cache", [][]string{test}},
		{"… again, after a change of its main.go", [][]string{{"sed", "-i", "s/0.1.0/0.1.1/", "main.go"}, test}},
		{"`provider new`, `go build` and `provider test`, all dependencies compiled", [][]string{
			{program, "provider", "new", "second"}, {"go", "build", "-C", second, "-o", second, "."},
			{program, "provider", "test", second + "/" + second, "--kit", second + "/kit.yaml", "--quiet"},
		}},
	} {
		began := time.Now()
		for _, step := range wait.steps {
			if err := run(step[0], step[1:]...); err != nil {
				return err
			}
		}
		row(wait.what, fmt.Sprintf("%.1f s", time.Since(began).Seconds()))
	}
	return nil
}

// authorRun runs a command without network and workspace, with a build cache of its own.
func authorRun(dir, cache, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOCACHE="+cache, "GOWORK=off", "GOPROXY=off", "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}
