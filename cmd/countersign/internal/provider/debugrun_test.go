package provider

import (
	"os"
	"path/filepath"
	"testing"
)

// What is printed for one provider does not depend on what was for another.
func TestEachProviderIsStartedInTheDebuggerOfItsLanguage(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		file, content, command string
		descriptors            bool
	}{
		{"python", "#!/a/venv/bin/python3\n", "/a/venv/bin/python3 -Xfrozen_modules=off -m debugpy --listen 127.0.0.1:5678 --wait-for-client", true},
		{"other", "#!/usr/bin/env python3.12\nserve()\n", "python3.12 -Xfrozen_modules=off -m debugpy --listen 127.0.0.1:5678 --wait-for-client", true},
		{"node", "#!/usr/bin/env -S node --use-openssl-ca\n", "node --inspect-brk --preserve-symlinks-main", true},
		{"shell", "#!/bin/sh\n", "gdb --args", true},
		{"machine", "\x7fELF", "gdb --args", true},
		{"empty", "", "gdb --args", true},
	} {
		path := filepath.Join(dir, c.file)
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := debuggerFor(path); got.command != c.command || got.descriptors != c.descriptors {
			t.Errorf("%s: %q, %v", c.file, got.command, got.descriptors)
		}
	}
	if got := debuggerFor(self); got.command != "dlv exec" || got.descriptors {
		t.Errorf("a program in Go: %q, %v", got.command, got.descriptors)
	}
}
