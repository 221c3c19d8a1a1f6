package pluginhost

import (
	"log/slog"
	"os"
	"strings"
)

// maxBinary bounds what is read to be hashed.
const maxBinary = 1 << 30

// binary is a provider's program, verified. What was verified is held open, and
// every start executes that, whatever has become of the file since.
type binary struct {
	path   string // the file, without symbolic links
	sha256 string // of the content, lower-case hex
	file   *os.File
	script bool // begins with #!: its interpreter opens it once more

	// What the file was like when it was hashed, where the file itself is what
	// is executed; nil where it is a sealed copy.
	seen os.FileInfo
}

// receipts are kept in a folder between starts, and save hashing a file of root's
// again that has not changed. Whoever can forge them is this user, and can run what
// he likes as this user anyhow. Where they cannot be read or kept, all is hashed.
type receipts struct {
	folder string // empty: none are kept
	log    *slog.Logger
}

// verify opens the file, hashes it and compares that with pin. An empty pin is
// let through; whether it may be is the caller's to decide.
func verify(path, pin string, seen receipts) (*binary, error) {
	b, err := openBinary(path, seen)
	if err != nil {
		return nil, err
	}
	if pin != "" && !strings.EqualFold(pin, b.sha256) {
		_ = b.Close()
		return nil, refuse(path, "its SHA-256 is %s, %s is pinned; if the file was replaced on purpose, pin the new one", b.sha256, strings.ToLower(pin))
	}
	return b, nil
}

// Close lets the content go. Processes that run it are not affected.
func (b *binary) Close() error { return b.file.Close() }

// isScript tells whether the file at f is run by an interpreter.
func isScript(f *os.File) bool {
	var head [2]byte
	n, _ := f.ReadAt(head[:], 0)
	return n == 2 && head == [2]byte{'#', '!'}
}
