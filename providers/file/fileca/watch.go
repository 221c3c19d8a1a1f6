package fileca

import (
	"context"
	"crypto/sha256"
	"time"
)

// debounce is how long more changes are awaited after the first.
const debounce = 100 * time.Millisecond

// watch takes over what changes in the folder, until ctx ends. It alone replaces
// what is held.
func (c *CA) watch(ctx context.Context, folder *folder, held [sha256.Size]byte) {
	defer close(c.done)
	defer folder.close()
	poll := time.NewTicker(c.limits.poll)
	defer poll.Stop()
	w := watch{ca: c, held: held}
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-folder.events:
			if settled == nil && folder.concerns(event) {
				settled = time.After(debounce)
			}
		case err := <-folder.errors:
			c.log.Warn("events of the folder were lost; the next look is at once", "dir", c.dir, "error", err)
			settled = time.After(0)
		case <-settled:
			settled = nil
			folder.follow()
			w.look()
		case <-poll.C:
			folder.follow()
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
