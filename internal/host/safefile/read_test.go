package safefile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/host/safefile"
)

func TestReadTakesOnlyBoundedRegularFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if content, err := safefile.Read(path, 5); err != nil || string(content) != "12345" {
		t.Errorf("%q, %v", content, err)
	}
	for says, read := range map[string]func() ([]byte, error){
		"has more than 4 bytes": func() ([]byte, error) { return safefile.Read(path, 4) },
		"not a regular file":    func() ([]byte, error) { return safefile.Read(filepath.Dir(path), 5) },
		"no such file":          func() ([]byte, error) { return safefile.Read(path+"-none", 5) },
	} {
		if _, err := read(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
