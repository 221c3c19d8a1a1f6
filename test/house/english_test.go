//go:build check

package house_test

import (
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var (
	lower    = flag.Bool("update", false, "lower the ceilings in english.txt to what is there")
	language = flag.String("english", "", "log each line that TestEnglish counts in the folders that begin so (with -v)")
)

// ceilings lists the folders with more marked lines than share allows.
const (
	ceilings = "english.txt"
	share    = 100 // A folder that is not listed may have one marked line in so many.
)

// marker matches what a native engineer seldom writes. In grpc-go, SPIRE, cert-manager, go-spiffe
// and Go's crypto, 0.2 to 0.4 % of the lines match, in client-go 0.7 %.
var marker = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	// Things do not speak, listen or know. Write which one returned, sent, named or received what.
	`told`, `tells?`, `telling`, `says`, `said`, `hears?`, `heard`, `knows`, `believe[sd]?`,
	// Name the actor.
	`nobody`, `somebody`, `anybody`, `whoever`, `whom`,
	// Negate the verb.
	`(is|are|was|were) (no \w+|none)`, `nothing of`, `for want of`, `may not be had`,
	`else (it|they)`, `lets? (\w+ )?be`, `what (it|they) (has|have) of`, `of ours`,
}, "|") + `)\b`)

// idiomatic are phrases with "is no" that natives write, too.
var idiomatic = regexp.MustCompile(`(?i)\b(is|are|was|were) no (longer|more|such|need|way|guarantee|effect|point)\b|\bthere (is|are|was|were) (no|none)\b`)

func marked(line string) bool {
	return marker.MatchString(idiomatic.ReplaceAllString(line, ""))
}

// prose is what people read in one folder.
type prose struct {
	lines  int
	marked []string // with file and line
}

func (p *prose) add(file string, line int, text string) {
	for i, s := range strings.Split(text, "\n") {
		if strings.TrimSpace(s) == "" {
			continue
		}
		p.lines++
		if marked(s) {
			p.marked = append(p.marked, fmt.Sprintf("%s:%d: %s", file, line+i, strings.TrimSpace(s)))
		}
	}
}

// addGo adds the comments, the strings of at least three words and the names of the tests.
func (p *prose) addGo(path string, text []byte) {
	files := token.NewFileSet()
	file := files.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, literal := s.Scan()
		line := file.Line(pos)
		switch {
		case tok == token.EOF:
			return
		case tok == token.COMMENT && !strings.HasPrefix(literal, "//go:"):
			p.add(path, line, literal)
		case tok == token.STRING && len(strings.Fields(literal)) >= 3:
			p.add(path, line, literal)
		case tok == token.IDENT && testFunction.MatchString(literal) && strings.HasSuffix(path, "_test.go"):
			p.add(path, line, sentence(literal))
		}
	}
}

var (
	testFunction = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]`)
	generated    = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
)

// sentence returns the words of a name: "test keys reach no log" for TestKeysReachNoLog.
func sentence(name string) string {
	var words strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			words.WriteByte(' ')
		}
		words.WriteRune(unicode.ToLower(r))
	}
	return words.String()
}

// readProse returns the prose of each folder that has tracked Go files or documents.
func readProse(t *testing.T) map[string]*prose {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go", "*.md")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("failed to list the files: %s: %v", cmd, err)
	}
	all := map[string]*prose{}
	for path := range strings.FieldsSeq(string(out)) {
		text, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) || generated.Match(text) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		if all[dir] == nil {
			all[dir] = &prose{}
		}
		if strings.HasSuffix(path, ".md") {
			all[dir].add(path, 1, string(text))
		} else {
			all[dir].addGo(path, text)
		}
	}
	return all
}

// readCeilings returns the marked lines that each listed folder may have.
func readCeilings(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(ceilings)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for line := range strings.Lines(string(text)) {
		dir, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		if all[dir], err = strconv.Atoi(count); err != nil {
			t.Fatalf("invalid line in %s: %q", ceilings, line)
		}
	}
	return all
}

// TestEnglish holds each folder to its ceiling: lines with marker words become fewer, never more.
func TestEnglish(t *testing.T) {
	found, allowed := readProse(t), readCeilings(t)
	now := map[string]int{}
	for dir, p := range found {
		if *language != "" && strings.HasPrefix(dir+"/", *language) {
			t.Logf("%s: %d of %d lines\n\t%s", dir, len(p.marked), p.lines, strings.Join(p.marked, "\n\t"))
		}
		if len(p.marked) > p.lines/share {
			now[dir] = len(p.marked)
		}
	}
	for dir, n := range now {
		if _, listed := allowed[dir]; n > allowed[dir] && (listed || !*lower) {
			t.Errorf("%s has %d lines with marker words, and may have %d; name the actor and the action in\n\t%s",
				dir, n, max(allowed[dir], found[dir].lines/share), strings.Join(found[dir].marked, "\n\t"))
		}
	}
	if *lower {
		writeCeilings(t, allowed, now)
		return
	}
	for dir, n := range allowed {
		if now[dir] < n {
			t.Errorf("%s: lower the ceiling from %d to %d: go test -tags check ./test/house -run English -update", dir, n, now[dir])
		}
	}
}

// writeCeilings makes what stands in the tree now the ceilings. A folder that was moved or split
// brings its lines along; so the sum may not rise.
func writeCeilings(t *testing.T, before, now map[string]int) {
	t.Helper()
	if sum(now) > sum(before) {
		t.Errorf("%d lines in %s would become %d", sum(before), ceilings, sum(now))
	}
	if t.Failed() {
		return
	}
	var text strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(now)) {
		fmt.Fprintf(&text, "%s %d\n", dir, now[dir])
	}
	if err := os.WriteFile(ceilings, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

func TestMarkerWords(t *testing.T) {
	for line, want := range map[string]bool{
		"the authority told no roots":        true,
		"it is no pattern":                   true,
		"given to nobody":                    true,
		"the token is no longer valid":       false,
		"there is no other pool":             false,
		"the CA returned no roots":           false,
		sentence("TestNobodyHoldsAKey"):      true,
		sentence("TestKeysReachNoLog"):       false,
		"unknown authority, see the manuals": false,
	} {
		if got := marked(line); got != want {
			t.Errorf("marked(%q) = %t, want %t", line, got, want)
		}
	}
}
