package verified

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// execFD is the lowest number for the executed descriptor. The child's own descriptors (0
// to 5) are put in place before exec and would replace a lower one.
const execFD = 100

// maxMemfdName is what memfd_create(2) allows.
const maxMemfdName = 249

// scriptFD is the number of a script's descriptor in the child.
const scriptFD = 5

// openBinary opens and hashes what will be executed: the file itself if only root can
// write it and we are not root, else a sealed copy in memory.
func openBinary(path string, seen Receipts) (*Binary, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	// Check the open file again: the finder checked a path.
	if err := checkFile(path, info); err != nil {
		return nil, err
	}
	if info.Size() > maxBinary {
		return nil, Refuse(path, "%d bytes exceed the limit of %d", info.Size(), maxBinary)
	}
	if onlyRootWrites(info) && os.Geteuid() != 0 {
		return holdFile(path, file, info, seen)
	}
	b, err := sealedCopy(path, file)
	if err == nil || !memoryMayNotRun(err) {
		return b, err
	}
	seen.Log.Warn("cannot execute from memory (vm.memfd_noexec), executing the provider's file; "+
		"this user could change it between check and start", "path", path)
	return holdFile(path, file, info, Receipts{Log: seen.Log})
}

func onlyRootWrites(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0 // mode: checkFile
}

// holdFile hashes an open file, to be executed by its descriptor.
func holdFile(path string, file *os.File, info os.FileInfo, seen Receipts) (*Binary, error) {
	sum, err := hashOrReceipt(path, file, info, seen)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	held, err := raise(file, path)
	if err != nil {
		return nil, err
	}
	return &Binary{Path: path, SHA256: sum, file: held, script: isScript(held), seen: info}, nil
}

// hashOrReceipt returns the hash from a receipt, or hashes the file.
func hashOrReceipt(path string, file *os.File, info os.FileInfo, seen Receipts) (string, error) {
	before := receiptOf(info)
	if sum := seen.find(path, before); sum != "" {
		return sum, nil
	}
	sum, err := hashBeside(io.NewSectionReader(file, 0, maxBinary), nil)
	if err != nil {
		return "", err
	}
	info, err = file.Stat()
	if err != nil {
		return "", err
	}
	before.SHA256 = sum
	if before.fits(receiptOf(info)) { // not written in the meantime
		seen.keep(path, before)
	}
	return sum, nil
}

// sealedCopy copies the file into memory, hashing it on the way, and seals the copy
// against changes.
func sealedCopy(path string, file *os.File) (*Binary, error) {
	fd, err := memfd(path)
	if err != nil {
		return nil, err
	}
	memory := os.NewFile(uintptr(fd), path)
	defer memory.Close()
	// Before it is sealed only this process has it: opening another's descriptor through
	// /proc needs the right to ptrace, which would defeat everything anyway.
	sum, err := hashBeside(io.LimitReader(file, maxBinary), memory)
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", path, err)
	}
	if err := seal(memory); err != nil {
		return nil, fmt.Errorf("seal the copy of %s: %w", path, err)
	}
	held, err := raise(memory, path)
	if err != nil {
		return nil, err
	}
	return &Binary{Path: path, SHA256: sum, file: held, script: isScript(held)}, nil
}

// seal makes a memory file immutable. On a busy machine the kernel itself may hold a page:
// it then waits about 150 ms and returns EBUSY.
func seal(memory *os.File) error {
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	var err error
	for range 10 {
		if _, err = unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS, seals); !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return err
}

func memfd(path string) (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	name := filepath.Base(path)
	name = name[:min(len(name), maxMemfdName)] // what /proc shows it as
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3 there was no MFD_EXEC and none was needed
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, fmt.Errorf("make a copy of %s in memory: %w", path, err)
	}
	return fd, nil
}

// memoryMayNotRun reports whether the system forbids executable memory files.
func memoryMayNotRun(err error) bool {
	return os.IsPermission(err)
}

// raise duplicates f to a number above the child's own descriptors.
func raise(f *os.File, path string) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, execFD)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMFILE) {
		return nil, fmt.Errorf("hold %s: the limit of %d open files is too low; raise it to %d or more (ulimit -n)", path, execFD, 2*execFD)
	}
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Unchanged fails if the content is no longer what was hashed. A sealed copy cannot
// change, but root can write its own file in place.
func (b *Binary) Unchanged() error {
	if b.seen == nil {
		return nil
	}
	now, err := b.file.Stat()
	if err != nil {
		return err
	}
	was, is := b.seen.Sys().(*syscall.Stat_t), now.Sys().(*syscall.Stat_t)
	if was.Size != is.Size || was.Mtim != is.Mtim || was.Mode != is.Mode || was.Uid != is.Uid {
		return Refuse(b.Path, "modified in place after it was verified; replace it by rename and start again")
	}
	return nil
}

// Command returns the path that a child executes and the files it must inherit for that.
// A program is loaded before descriptors close; a script must stay open for its
// interpreter.
func (b *Binary) Command() (path string, extra []*os.File) {
	if b.script {
		return "/proc/self/fd/" + strconv.Itoa(scriptFD), []*os.File{b.file}
	}
	return "/proc/self/fd/" + strconv.Itoa(int(b.file.Fd())), nil
}

// mountedNoexec reports whether the file system of f is mounted noexec.
func mountedNoexec(f *os.File) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0
}
