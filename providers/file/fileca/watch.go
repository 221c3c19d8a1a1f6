package fileca

import (
	"context"
	"crypto/sha256"
)

// watch takes over changes of the folder until ctx ends. Nothing else replaces the authority
// in use.
func (c *CA) watch(ctx context.Context, changed <-chan struct{}, held [sha256.Size]byte) {
	w := watch{ca: c, held: held}
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			w.look()
		}
	}
}

// watch is the state of that goroutine.
type watch struct {
	ca      *CA
	held    [sha256.Size]byte // of the files in use
	refused string            // the last error logged
}

// look reads the folder and takes it over if it is changed and valid.
func (w *watch) look() {
	files, err := readFiles(w.ca.dir)
	if err != nil {
		w.refuse(err, "")
		return
	}
	sum := files.sum()
	if sum == w.held {
		w.refused = ""
		return
	}
	if err := w.ca.take(files); err != nil {
		w.refuse(err, string(sum[:]))
		return
	}
	w.held, w.refused = sum, ""
}

// refuse logs an error once for each content.
func (w *watch) refuse(err error, content string) {
	if refused := err.Error() + content; refused != w.refused {
		w.refused = refused
		w.ca.log.Error("invalid change, keeping the previous CA", "dir", w.ca.dir, "error", err)
	}
}
