package ondemand_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
)

// nameFile is a file of names, watched outside of the bubble of a test.
type nameFile struct {
	*names.Patterns
	t       *testing.T
	path    string
	changed chan struct{}
}

func openNames(t *testing.T) *nameFile {
	t.Helper()
	f := &nameFile{t: t, path: filepath.Join(t.TempDir(), "names.txt"), changed: make(chan struct{}, 10)}
	var err error
	f.Patterns, err = names.Open(names.Config{File: f.path, Poll: 20 * time.Millisecond, Changed: func() { f.changed <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// replace replaces the file and waits until it was read.
func (f *nameFile) replace(content string) {
	f.t.Helper()
	if err := os.WriteFile(f.path+".new", []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		f.t.Fatal(err)
	}
	<-f.changed
}

// remove removes the file and waits until that was noticed.
func (f *nameFile) remove() {
	f.t.Helper()
	if err := os.Remove(f.path); err != nil {
		f.t.Fatal(err)
	}
	for f.Err() == nil {
		runtime.Gosched() // time stands still in the bubble
	}
}

func TestFileOfNamesThatComesLateOrdersNothingAgain(t *testing.T) {
	file := openNames(t)
	bubble(t, stored, func(e *engine) {
		e.subscribe("a.shop.example.org")
		before := e.has("a.shop.example.org")
		e.config.Rules[0].Patterns = file.Patterns
		e.restart()
		if h := e.subscribe("a.shop.example.org"); h.err == nil {
			t.Error("a name was accepted without the file that lists it")
		}
		file.replace("a.shop.example.org\n")
		e.subscribe("a.shop.example.org")
		if e.has("a.shop.example.org").Fingerprint != before.Fingerprint {
			t.Error("a certificate that is held was replaced")
		}
		e.orders(1)
		after(16 * time.Hour)
		e.orders(2)
	})
}

func TestNameThatItsFileNoLongerHasIsNotRenewed(t *testing.T) {
	file := openNames(t)
	file.replace("a.shop.example.org\nb.shop.example.org\n")
	bubble(t, func(e *engine, c *ondemand.Config) { stored(e, c); c.Rules[0].Patterns = file.Patterns }, func(e *engine) {
		e.subscribe("a.shop.example.org")
		e.subscribe("b.shop.example.org")
		e.has("a.shop.example.org")
		file.replace("b.shop.example.org\n")
		after(16 * time.Hour)
		e.has("a.shop.example.org") // to its end
		e.orders(3)                 // b was renewed
		after(9 * time.Hour)
		if e.rule().Held != 1 {
			t.Errorf("%+v", e.rule())
		}
	})
}

// What is not known is not a no.
func TestNameIsRenewedWhileItsFileCannotBeRead(t *testing.T) {
	file := openNames(t)
	file.replace("a.shop.example.org\n")
	bubble(t, func(e *engine, c *ondemand.Config) { stored(e, c); c.Rules[0].Patterns = file.Patterns }, func(e *engine) {
		e.subscribe("a.shop.example.org")
		e.has("a.shop.example.org")
		file.replace("b.shop.example.org\n")
		file.remove()
		after(16 * time.Hour)
		e.orders(2)
	})
}
