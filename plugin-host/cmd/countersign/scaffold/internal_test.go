package scaffold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBinaryInCloneFindsItsSDK(t *testing.T) {
	clone := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module " + module + "\n", "go.sum": ""} {
		if err := os.WriteFile(filepath.Join(clone, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if sdk, err := cloneAround(filepath.Join(clone, "bin", "countersign")); err != nil || sdk.Replace != clone {
		t.Errorf("got %q, %v", sdk.Replace, err)
	}
	if _, err := cloneAround(filepath.Join(t.TempDir(), "countersign")); err == nil || !strings.Contains(err.Error(), "--sdk") {
		t.Errorf("outside of a clone: %v", err)
	}
}
