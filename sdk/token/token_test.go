package token_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJpc3Rpby1jYSJ9.c2lnbmF0dXJl"

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFileIsReadForEachRequest(t *testing.T) {
	source := token.File{Path: filepath.Join(t.TempDir(), "token")}
	for content, want := range map[string]ca.Token{jwt: jwt, "other\r\n": "other", "t\n\n": "t"} {
		write(t, source.Path, content)
		if got, err := source.Token(t.Context()); got.Token != want || err != nil {
			t.Errorf("%q: %q, %v", content, got.Token.Reveal(), err)
		}
	}
}

func TestInvalidTokenFileIsNamedAndNotShown(t *testing.T) {
	for name, test := range map[string]struct{ content, says string }{
		"empty":       {"", "is empty"},
		"white space": {" \n\t", "is empty"},
		"two lines":   {jwt + "\n" + jwt, "has more than one line"},
		"header":      {jwt + "\r\nx-admin: 1", "has more than one line"},
		"two words":   {jwt + " " + jwt, "has a space"},
		"control":     {jwt + "\x00", "not printable ASCII"},
		"not ASCII":   {jwt + "ä", "not printable ASCII"},
		"not UTF-8":   {jwt + "\xff", "not printable ASCII"},
		"too long":    {strings.Repeat(jwt, 2000), "has more than 65536 bytes"},
	} {
		source := token.File{Path: filepath.Join(t.TempDir(), "token"), Optional: true}
		write(t, source.Path, test.content)
		got, err := source.Token(t.Context())
		if got.Token != "" || !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("%s: %v, %v", name, got, err)
			continue
		}
		if text := err.Error(); !strings.Contains(text, source.Path) || !strings.Contains(text, test.says) || strings.Contains(text, jwt[:12]) {
			t.Errorf("%s: %q, want the path and %q", name, text, test.says)
		}
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, filepath.Dir(pipe), "/dev/zero"} {
		_, err := token.File{Path: path}.Token(t.Context())
		if err == nil || !strings.Contains(err.Error(), path+" is not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestMissingFileIsAnErrorUnlessOptional(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := (token.File{Path: missing}).Token(t.Context()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("required: %v", err)
	}
	if got, err := (token.File{Path: missing, Optional: true}).Token(t.Context()); got.Token != "" || err != nil {
		t.Errorf("optional: %v, %v", got, err)
	}
}

func TestStaticTokenIsNotPrinted(t *testing.T) {
	source := token.Static{Value: jwt}
	if got, err := source.Token(t.Context()); got.Token != jwt || err != nil {
		t.Errorf("%q, %v", got.Token.Reveal(), err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if shown := fmt.Sprintf(format, source); strings.Contains(shown, jwt) {
			t.Errorf("%s shows %s", format, shown)
		}
	}
}
