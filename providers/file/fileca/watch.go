package fileca

import (
	"context"
	"crypto/sha256"
)

// watch takes over what changes in the folder, until ctx ends. It alone replaces
// what is held.
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

// watch is what the goroutine remembers between two looks.
type watch struct {
	ca      *CA
	held    [sha256.Size]byte // of the files that are held
	refused string            // what was last complained of
}

// look reads the folder and takes it over if it changed and is good.
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

// refuse says so once for each content.
func (w *watch) refuse(err error, content string) {
	if refused := err.Error() + content; refused != w.refused {
		w.refused = refused
		w.ca.log.Error("the changed CA is refused, the one before it stays", "dir", w.ca.dir, "error", err)
	}
}
