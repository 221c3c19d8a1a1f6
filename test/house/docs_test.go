//go:build check

package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// documents returns the text of each Markdown file that is tracked, by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	all := map[string]string{}
	for path := range strings.FieldsSeq(string(out)) {
		all[path] = read(t, path)
	}
	if len(all) < 20 {
		t.Fatalf("only %d documents were found", len(all))
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fenced   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	link     = regexp.MustCompile(`\[([^\]]+)\]\(([^)\s]+)\)`)
	testName = regexp.MustCompile("^`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`$")
)

// A link that is called like a test leads to the file that has the test.
func TestDocumentLinksResolve(t *testing.T) {
	for path, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			target, heading, _ := strings.Cut(m[2], "#")
			if strings.Contains(target, "://") {
				continue
			}
			if target = filepath.Join(filepath.Dir(path), target); strings.HasPrefix(m[2], "#") {
				target = path
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: [%s] leads to %s, which does not exist", path, m[1], target)
			} else if test := testName.FindStringSubmatch(m[1]); test != nil && !strings.Contains(read(t, target), "\nfunc "+test[1]+"(") {
				t.Errorf("%s: %s has no %s", path, target, test[1])
			} else if heading != "" && !slices.Contains(anchors(read(t, target)), heading) {
				t.Errorf("%s: %s has no heading #%s", path, target, heading)
			}
		}
	}
}

// anchors returns how a link names each heading of a document.
func anchors(text string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		plain := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}

// Each rule names the files that keep it and the tests that break without it, by links,
// which the test above follows.
func TestArchitectureNamesFilesAndTestsOfEachRule(t *testing.T) {
	const page = "docs/architecture.md"
	_, rules, _ := strings.Cut(read(t, page), "\n## What always holds\n")
	rules, _, _ = strings.Cut(rules, "\n## ")
	all := strings.Split(rules, "\n### ")[1:]
	if len(all) != 17 {
		t.Errorf("%s has %d rules, want 17", page, len(all))
	}
	for _, rule := range all {
		name, _, _ := strings.Cut(rule, "\n")
		_, kept, _ := strings.Cut(rule, "\n* Kept by ")
		kept, tests, _ := strings.Cut(kept, "\n* Tests:")
		if !link.MatchString(kept) || !link.MatchString(tests) {
			t.Errorf("%s: rule %s names no file or no test", page, name)
		}
	}
	// What is not linked is not followed.
	for _, bare := range regexp.MustCompile("[^[](`(?:Test|Fuzz)[A-Z]\\w*`)").FindAllStringSubmatch(rules, -1) {
		t.Errorf("%s: %s is no link", page, bare[1])
	}
}

// The code of the page for embedders is an example's, which compiles and is run.
func TestEmbeddingPageShowsExampleCode(t *testing.T) {
	_, code, _ := strings.Cut(read(t, "docs/embed.md"), "```go\n")
	code, _, found := strings.Cut(code, "```")
	if !found || !strings.Contains(read(t, "examples/https-server/main.go"), code) {
		t.Errorf("docs/embed.md shows what is not in examples/https-server/main.go:\n%s", code)
	}
}

// What an operator looks up is what a program says.
func TestOperatorsPageQuotesProgramMessages(t *testing.T) {
	code := sources(t, "cmd", "internal", "plugin-host", "sdk")
	_, table, _ := strings.Cut(read(t, "docs/operators.md"), "\n## When something is wrong\n")
	quotes := regexp.MustCompile(`(?m)^\| "([^"]+)" \|`).FindAllStringSubmatch(table, -1)
	if len(quotes) < 5 {
		t.Errorf("only %d messages are quoted", len(quotes))
	}
	for _, quote := range quotes {
		for _, part := range regexp.MustCompile(` ?(?:\bN\b|…)`).Split(quote[1], -1) { // what differs
			if !strings.Contains(code, strings.TrimSpace(part)) {
				t.Errorf("docs/operators.md quotes %q, and no program says %q", quote[1], part)
			}
		}
	}
}

// sources returns the code of all packages below the folders, without tests.
func sources(t *testing.T, dirs ...string) string {
	t.Helper()
	var code strings.Builder
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				text, readErr := os.ReadFile(path)
				code.Write(text)
				return readErr
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return code.String()
}

func TestArchitectureNamesEachPackageWithArrows(t *testing.T) {
	page := read(t, "docs/architecture.md")
	for pkg := range arrows {
		if !strings.Contains(page, "`"+pkg+"`") && pkg != "plugin-host/internal/confine" { // in the row of process
			t.Errorf("docs/architecture.md has no row for %s", pkg)
		}
	}
}

// A row names each import of its packages, but for internal and proto: by the end of its path.
func TestArchitectureNamesImportsOfEachPackage(t *testing.T) {
	names := regexp.MustCompile("`([^`]+)`")
	_, page, _ := strings.Cut(read(t, "docs/architecture.md"), "\n## Packages and their arrows\n")
	for _, row := range regexp.MustCompile(`(?m)^\|([^|]+)\|[^|]+\|([^|]+)\|$`).FindAllStringSubmatch(page, -1) {
		of, named := names.FindAllStringSubmatch(row[1], -1), names.FindAllStringSubmatch(row[2], -1)
		for _, pkg := range of {
			for _, imported := range arrows[pkg[1]] {
				hidden := strings.HasPrefix(imported, "proto/") || strings.Contains("/"+imported, "/internal/")
				isNamed := func(name []string) bool { return strings.HasSuffix("/"+imported, "/"+name[1]) }
				if !hidden && !slices.ContainsFunc(named, isNamed) && !slices.ContainsFunc(of, isNamed) {
					t.Errorf("docs/architecture.md, row of %s: the import %s is missing", pkg[1], imported)
				}
			}
		}
	}
}

// Tables, code and links may be longer, as they cannot be broken.
func TestDocumentsWrapAt100Columns(t *testing.T) {
	for path, text := range documents(t) {
		for line := range strings.Lines(fenced.ReplaceAllString(text, "")) {
			line = strings.TrimRight(line, "\n")
			whole := slices.ContainsFunc([]string{"|", "    ", "![", "<!--"}, func(begin string) bool { return strings.HasPrefix(line, begin) }) ||
				slices.ContainsFunc(strings.Fields(line), func(word string) bool { return utf8.RuneCountInString(word) > 80 })
			if n := utf8.RuneCountInString(line); n > 100 && !whole {
				t.Errorf("%s: %d columns: %.60s…", path, n, line)
			}
		}
	}
}

// The next run of a benchmark replaces what is between its marks.
func TestFiguresOfABenchmarkHaveNoHeading(t *testing.T) {
	written := false
	for n, line := range strings.Split(read(t, "docs/figures.md"), "\n") {
		switch {
		case strings.HasPrefix(line, "<!-- Written by "):
			written = true
		case strings.HasPrefix(line, "<!-- End of what "):
			written = false
		case written && strings.HasPrefix(line, "#"):
			t.Errorf("docs/figures.md:%d: %q is in what a benchmark writes", n+1, line)
		}
	}
}

func TestREADMEIsShort(t *testing.T) {
	words := slices.DeleteFunc(strings.Fields(read(t, "README.md")), func(word string) bool {
		return !strings.ContainsFunc(word, unicode.IsLetter) && !strings.ContainsFunc(word, unicode.IsDigit) // borders of tables
	})
	if n := len(words); n > 900 {
		t.Errorf("README.md has %d words, at most 900 are allowed", n)
	}
}

// The commands that no test runs name files of the tree and targets of the Makefile; those of
// docs/start-kubernetes.md also run against a real API server.
func TestDocumentedCommandsExist(t *testing.T) {
	makefile, found := read(t, "Makefile"), 0
	for path, text := range documents(t) {
		for _, block := range fenced.FindAllString(text, -1) {
			for _, m := range regexp.MustCompile(`(?m)^(?:\$ )?(?:docker|kubectl) .*? -[fk] (\S+)|^(?:\$ )?make ([a-z0-9-]+)`).FindAllStringSubmatch(block, -1) {
				found++
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("%s: %s: %v", path, m[0], err)
				}
				if m[2] != "" && !strings.Contains(makefile, "\n"+m[2]+":") {
					t.Errorf("%s: the Makefile has no %s", path, m[2])
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("only %d commands are found", found)
	}
}
