package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Limits on watched folders.
const (
	maxFile  = 4 << 20 // bytes; for larger files, only size and time are compared
	maxFiles = 4096
	maxDepth = 8
)

// poll sends the digest after each change of the watched folders.
func (p *Proxy) poll(ctx context.Context, last string, changes chan<- string) {
	if len(p.cfg.Watch.Folders) == 0 {
		return
	}
	ticker := time.NewTicker(p.cfg.Watch.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := p.digest()
		if now == last {
			continue
		}
		last = now
		select {
		case changes <- now:
		case <-ctx.Done():
			return
		}
	}
}

// watched computes one digest of folders and files.
type watched struct {
	paths []string
	log   *slog.Logger
	said  string // the last error, which is logged once
}

// digest returns the SHA-256 of all names and contents, in hex. Missing files are skipped, so
// that the digest changes when they appear.
func (w *watched) digest() string {
	if len(w.paths) == 0 {
		return ""
	}
	r := reading{sum: sha256.New(), left: maxFiles}
	for _, path := range w.paths {
		r.add(path, path, maxDepth)
	}
	w.say(r.wrong)
	return hex.EncodeToString(r.sum.Sum(nil))
}

func (w *watched) say(wrong error) {
	text := ""
	if wrong != nil {
		text = wrong.Error()
	}
	if text != "" && text != w.said {
		w.log.Warn("cannot read all of a watched folder", "error", wire.CleanText(text, ""))
	}
	w.said = text
}

// reading is one pass over the folders.
type reading struct {
	sum   hash.Hash
	left  int   // files and folders that may still be read
	wrong error // the first error
}

// add adds a file or a folder, following symlinks. It skips Kubernetes' internal names, which
// begin with two dots (..data): the links to them lead to the same files.
func (r *reading) add(path, name string, depth int) {
	info, err := os.Stat(path)
	if err == nil && depth > 0 && r.left > 0 {
		r.left--
		switch {
		case info.IsDir():
			err = r.folder(path, name, depth)
		case info.Mode().IsRegular():
			err = r.file(path, name, info)
		}
	} else if err == nil {
		err = fmt.Errorf("%s: more than %d files or %d folders deep", name, maxFiles, maxDepth)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && r.wrong == nil {
		r.wrong = err
	}
}

func (r *reading) folder(path, name string, depth int) error {
	entries, err := os.ReadDir(path) // sorted
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), "..") {
			r.add(filepath.Join(path, entry.Name()), filepath.Join(name, entry.Name()), depth-1)
		}
	}
	return err
}

// file adds the name, kind and digest of a file in an unambiguous format, so that different
// folders have different digests.
func (r *reading) file(path, name string, info fs.FileInfo) error {
	if info.Size() > maxFile {
		fmt.Fprintf(r.sum, "%q large %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	content := sha256.New()
	if _, err := io.Copy(content, io.LimitReader(file, maxFile)); err != nil {
		return err
	}
	fmt.Fprintf(r.sum, "%q file %x\n", name, content.Sum(nil))
	return nil
}
