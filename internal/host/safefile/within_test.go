package safefile

import (
	"os"
	"path/filepath"
	"testing"
)

// A record that its owner replaces again and again is never taken for one that cannot be read.
func TestFileThatIsReplacedIsReadAnew(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	replace := func() error {
		if err := os.WriteFile(filepath.Join(root.Name(), "new"), []byte("text"), 0o600); err != nil {
			return err
		}
		return root.Rename("new", "file")
	}
	if err := replace(); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := replace(); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 20_000 {
		got, err := ReadWithin(root, "file", 10, func(os.FileInfo) error { return nil })
		if err != nil || string(got) != "text" {
			t.Errorf("%q, %v", got, err)
			break
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := root.Close(); err != nil {
		t.Error(err)
	}
}
