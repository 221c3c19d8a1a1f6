package verified

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
)

// maxBinary bounds what is read to be hashed.
const maxBinary = 1 << 30

// Binary is a program whose content was verified. It holds that content open: every
// start executes it, whatever happens to the file at Path afterwards. It is read-only
// and safe for concurrent use.
type Binary struct {
	Path   string // of the file, symbolic links resolved
	SHA256 string // of the content, lower-case hex

	file   *os.File
	script bool // begins with #!: the interpreter opens the file again

	// seen is the file's state when it was hashed, if the file itself is executed;
	// nil for a sealed copy.
	seen os.FileInfo
}

// Receipts remember the hashes of verified files between starts, so that a file that
// only root can write is not hashed again. They need no protection from this user, who
// can run anything as this user anyway. If they cannot be read or written, every file
// is hashed.
type Receipts struct {
	Folder string // empty: no receipts
	Log    *slog.Logger
}

// Open checks the file at path, hashes it and compares the hash with pin. It accepts
// an empty pin: whether that is allowed is the caller's decision.
func Open(path, pin string, receipts Receipts) (*Binary, error) {
	real, err := inspect(path)
	if err != nil {
		return nil, err
	}
	b, err := openBinary(real, receipts)
	if err != nil {
		return nil, err
	}
	if pin != "" && !strings.EqualFold(pin, b.SHA256) {
		_ = b.Close()
		return nil, Refuse(real, "its SHA-256 is %s, the pin is %s; if you replaced the file on purpose, pin the new one", b.SHA256, strings.ToLower(pin))
	}
	return b, nil
}

// Close releases the content. Running processes are not affected.
func (b *Binary) Close() error { return b.file.Close() }

// Explain returns a better error for a start that failed with err, or nil if it has none.
func (b *Binary) Explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return Refuse(b.Path, "%s", whyNotExecutable(b.file))
	case errors.Is(err, fs.ErrNotExist): // the kernel's error for a missing interpreter, too
		return CheckProgram(b.Path)
	case errors.Is(err, fs.ErrPermission) && mountedNoexec(b.file):
		return Refuse(b.Path, "its file system is mounted noexec; move the file, or remount without noexec")
	}
	return nil
}

// Exec runs the program in place of this process; args[0] is what it is called. It
// returns only on failure, except on Windows, which cannot replace a process: there it
// waits for the child and returns its [*exec.ExitError].
func (b *Binary) Exec(args, env []string, log *slog.Logger) error {
	if err := b.Unchanged(); err != nil {
		return err
	}
	err := b.replaceProcess(args, env, log)
	if better := b.Explain(err); better != nil {
		return better
	}
	return err
}

// isScript reports whether f is run by an interpreter.
func isScript(f *os.File) bool {
	var head [2]byte
	n, _ := f.ReadAt(head[:], 0)
	return n == 2 && head == [2]byte{'#', '!'}
}
