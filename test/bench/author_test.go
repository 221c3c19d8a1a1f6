package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// author measures what somebody waits for who writes a provider: from `provider new` to a binary
// that passes the suite, and its tests with and without a build cache. The modules are in the
// module cache, and nothing is downloaded.
func (b *bench) author() error {
	fmt.Println("\n| the author of a provider waits | time |\n|---|---|")
	dir, cache := filepath.Join(b.dir, "countersign-provider-acme"), filepath.Join(b.dir, "gocache")
	run := func(name string, args ...string) error { return authorRun(dir, cache, name, args...) }
	program := filepath.Join(b.root, "countersign")
	const second = "countersign-provider-second"
	test := []string{"go", "test", "./..."}
	step, err := stepFour("docs/write-a-provider.md")
	if err != nil {
		return err
	}
	if err := authorRun(b.dir, cache, program, "provider", "new", "acme"); err != nil {
		return err
	}
	if err := run("bash", "-c", step); err != nil {
		return err
	}
	for _, wait := range []struct {
		what  string
		steps [][]string
	}{
		{"`go test` of a provider as the page has it, with an empty build cache", [][]string{test}},
		{"… again, after a change of its main.go", [][]string{{"sed", "-i", "s/0.1.0/0.1.1/", "main.go"}, test}},
		{"`provider new`, `go build` and `provider test`, all dependencies compiled", [][]string{
			{program, "provider", "new", "second"}, {"go", "build", "-C", second, "-o", second, "."},
			{program, "provider", "test", second + "/" + second, "--kit", second + "/kit.yaml", "--quiet"},
		}},
		{"`provider new`, the page's step 4 and `go test`, all dependencies compiled", [][]string{
			{program, "provider", "new", "acme", "--dir", "third"}, {"bash", "-c", "cd third\n" + step}, {"go", "test", "-C", "third", "./..."},
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

// stepFour returns the commands that put a CA into a new provider: those of the page's step 4 that
// write files.
func stepFour(page string) (commands string, err error) {
	text, err := os.ReadFile(page)
	_, step, _ := strings.Cut(string(text), "\n## 4. ")
	step, _, _ = strings.Cut(step, "\n## 5. ")
	for line := range strings.Lines(step) {
		if more, ok := strings.CutPrefix(line, ">"); ok {
			commands += strings.TrimPrefix(more, " ")
		} else if command, ok := strings.CutPrefix(line, "$ "); ok && (strings.HasPrefix(command, "cat") || strings.HasPrefix(command, "mkdir")) {
			commands += command
		}
	}
	if err == nil && commands == "" {
		err = fmt.Errorf("%s has no step 4", page)
	}
	return commands, err
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
