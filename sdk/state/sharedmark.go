package state

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/countersign-dev/countersign/internal/host/safefile"
)

const (
	// markName is the file by which the folder is recognized: the one below a mount that is away is
	// another.
	markName  = "countersign-shared"
	markMagic = "countersign shared folder 1\n"
	markMost  = 256
)

// checkMark compares the mark of the folder with the one of the first call, which makes one
// that is missing.
func (s *Shared) checkMark(root *os.Root) error {
	mark, err := readMark(root) // without the lock: it may hang
	if errors.Is(err, fs.ErrNotExist) {
		if s.firstCall() {
			if err := s.makeMark(root); err != nil {
				return err
			}
		}
		mark, err = readMark(root) // made by this call, or by another first one
	}
	if err != nil {
		return fmt.Errorf("%s: %w", markName, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mark == "" && mark != s.markOf(mark[len(markMagic):len(markMagic)+2*idBytes]):
		return unfit{fmt.Errorf("%s was made with another key: use the same key on all machines", markName)}
	case s.mark == "":
		s.mark = mark
	case s.mark != mark:
		return fmt.Errorf("%s is the one of another folder: restart this program if that is meant", markName)
	}
	return nil
}

func (s *Shared) firstCall() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark == ""
}

func readMark(root *os.Root) (string, error) {
	text, err := readPrivate(root, markName, markMost)
	if err != nil {
		return "", err
	}
	if len(text) != len(markMagic)+2*idBytes+1+2*sha256.Size+1 || string(text[:len(markMagic)]) != markMagic {
		return "", errors.New("it is not the mark of a shared folder")
	}
	return string(text), nil
}

// markOf returns the mark with an ID, which is bound to the key: machines with different keys would
// replace each other's records.
func (s *Shared) markOf(id string) string {
	sum := hmac.New(sha256.New, s.key)
	sum.Write([]byte(markMagic + id))
	return markMagic + id + " " + hex.EncodeToString(sum.Sum(nil)) + "\n"
}

// makeMark makes the mark, unless another machine has made one.
func (s *Shared) makeMark(root *os.Root) error {
	fresh := unfinished + randomID()
	err := safefile.Create(root, fresh, safefile.File{Mode: fileMode, Content: []byte(s.markOf(randomID()))})
	if err == nil {
		if err = root.Link(fresh, markName); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, root.RemoveAll(fresh), safefile.Sync(root))
}
