package names_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
)

// patience is how long a test waits for an event of the file system.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched is a set of patterns with a file.
type watched struct {
	*names.Patterns
	path    string
	changed chan struct{}
	log     logtest.Log
}

func watch(t *testing.T, content string) *watched {
	t.Helper()
	w := &watched{path: filepath.Join(t.TempDir(), "names.txt"), changed: make(chan struct{}, 100)}
	if content != "" {
		w.write(t, content)
	}
	var err error
	w.Patterns, err = names.Open(names.Config{
		Patterns: []string{"fixed.example.org"}, File: w.path, Poll: 50 * time.Millisecond,
		Changed: func() { w.changed <- struct{}{} }, Log: w.log.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// write replaces the file, as an editor does.
func (w *watched) write(t *testing.T, content string) {
	t.Helper()
	fresh := w.path + ".new"
	if err := os.WriteFile(fresh, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, w.path); err != nil {
		t.Fatal(err)
	}
}

func (w *watched) awaitChange(t *testing.T) {
	t.Helper()
	select {
	case <-w.changed:
	case <-time.After(patience):
		t.Fatal("the change of the file was not noticed")
	}
}

func (w *watched) awaitErr(t *testing.T, says string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err := w.Err(); err != nil && strings.Contains(err.Error(), says) {
			return
		}
	}
	t.Fatalf("the error is %v, want %q", w.Err(), says)
}

func (w *watched) matches(name string) bool {
	_, ok := w.Match(name)
	return ok
}

func TestChangedFileOfNamesIsReadAgain(t *testing.T) {
	w := watch(t, "# customers\n\n A.example.org \r\n*.shop.example.org\n")
	if !w.matches("a.example.org") || !w.matches("b.shop.example.org") || !w.matches("fixed.example.org") || w.matches("b.example.org") || w.Err() != nil {
		t.Errorf("patterns %v, %v", w.Strings(), w.Err())
	}
	w.write(t, "b.example.org\n")
	w.awaitChange(t)
	if w.matches("a.example.org") || !w.matches("b.example.org") || !w.matches("fixed.example.org") {
		t.Errorf("patterns %v", w.Strings())
	}
	w.write(t, "# none\n")
	w.awaitChange(t)
	if w.matches("b.example.org") || !w.matches("fixed.example.org") || w.Err() != nil {
		t.Errorf("patterns %v, %v", w.Strings(), w.Err())
	}
}

func TestUnusableFileOfNamesKeepsLastGoodContent(t *testing.T) {
	for says, spoil := range map[string]func(t *testing.T, w *watched){
		"no such file": func(t *testing.T, w *watched) {
			if err := os.Remove(w.path); err != nil {
				t.Fatal(err)
			}
		},
		"line 2: ":  func(t *testing.T, w *watched) { w.write(t, "b.example.org\nsecret_token\n") },
		"is empty":  func(t *testing.T, w *watched) { w.write(t, "\n") },
		"a regular": func(t *testing.T, w *watched) { w.replaceByFolder(t) },
	} {
		t.Run(says, func(t *testing.T) {
			w := watch(t, "a.example.org\n")
			spoil(t, w)
			w.awaitErr(t, says)
			if !w.matches("a.example.org") || w.matches("b.example.org") {
				t.Errorf("patterns %v", w.Strings())
			}
			w.log.Await(t, patience, "the error, which is held first", func(text string) bool { return strings.Contains(text, "last_content_kept=true") })
			if text := w.log.String(); strings.Contains(text, "secret_token") {
				t.Errorf("logged %s", text)
			}
			_ = os.Remove(w.path)
			w.write(t, "a.example.org\n")
			w.awaitChange(t)
			if !w.matches("a.example.org") || w.Err() != nil {
				t.Errorf("patterns %v, %v", w.Strings(), w.Err())
			}
		})
	}
}

func (w *watched) replaceByFolder(t *testing.T) {
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.path, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestFileOfNamesMayComeLater(t *testing.T) {
	w := watch(t, "")
	if w.Err() == nil || w.matches("a.example.org") || !w.matches("fixed.example.org") {
		t.Errorf("patterns %v, %v", w.Strings(), w.Err())
	}
	w.write(t, "a.example.org")
	w.awaitChange(t)
	if !w.matches("a.example.org") || w.Err() != nil {
		t.Errorf("patterns %v, %v", w.Strings(), w.Err())
	}
	w.Close()
	w.Close()
}
