package fileca

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider/filewatch"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// mount lays files out as Kubernetes does: ca-cert.pem -> ..data/ca-cert.pem,
// ..data -> ..2026_1, and a change renames another ..data over it.
func mount(t *testing.T, dir string, generation int, files map[string][]byte) {
	t.Helper()
	real := fmt.Sprintf("..2026_%d", generation)
	if err := os.Mkdir(filepath.Join(dir, real), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, filepath.Join(dir, real), files)
	link(t, real, filepath.Join(dir, "..data"))
	for name := range files {
		if generation == 1 {
			link(t, filepath.Join("..data", name), filepath.Join(dir, name))
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", generation-1))); err != nil {
		t.Fatal(err)
	}
}

// link makes a symbolic link, in place of one that is there.
func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path+"_tmp"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"_tmp", path); err != nil {
		t.Fatal(err)
	}
}

func TestTwentySwapsAreEachSeen(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	authority := catest.NewCA(catest.Options{})
	dir := folderOf(t, nil)
	mount(t, dir, 1, authority.IstioFiles())
	log := newLogged()
	c := mustOpen(t, settingsWithLog(dir, log))
	roots := testkit.WatchRoots(t, c)
	roots.Gets(t, patience, authority.Bundle().PEM())
	for swap := 2; swap <= 21; swap++ {
		authority.Rotate()
		mount(t, dir, swap, authority.IstioFiles())
		roots.Gets(t, patience, authority.Bundle().PEM())
	}
	log.mustBeSilent(t)
	req, check := web.request(t, "")
	if chain := sign(t, c, req, check); !chain.Root.Equal(rootOf(t, authority)) {
		t.Error("the last one does not sign")
	}
}

func TestChangeIsSeenHoweverMade(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	for name, change := range map[string]func(t *testing.T, dir string, files map[string][]byte){
		"written-in-place": writeFiles,
		"renamed-file-by-file": func(t *testing.T, dir string, files map[string][]byte) {
			t.Helper()
			for name, content := range files {
				writeFiles(t, dir, map[string][]byte{name + ".new": content})
				if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		},
		"folder-replaced": func(t *testing.T, dir string, files map[string][]byte) {
			t.Helper()
			fresh := folderOf(t, files)
			if err := errors.Join(os.Rename(dir, dir+".old"), os.Rename(fresh, dir)); err != nil {
				t.Fatal(err)
			}
		},
		"folder-made-a-link": func(t *testing.T, dir string, files map[string][]byte) {
			t.Helper()
			if err := os.Rename(dir, dir+".old"); err != nil {
				t.Fatal(err)
			}
			link(t, folderOf(t, files), dir)
		},
		"files-made-links": func(t *testing.T, dir string, files map[string][]byte) {
			t.Helper()
			elsewhere := folderOf(t, files)
			for name := range files {
				link(t, filepath.Join(elsewhere, name), filepath.Join(dir, name))
			}
		},
		"removed-and-written": func(t *testing.T, dir string, files map[string][]byte) {
			t.Helper()
			for name := range files {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			writeFiles(t, dir, files)
		},
	} {
		t.Run(name, func(t *testing.T) {
			authority := catest.NewCA(catest.Options{Intermediates: 1})
			dir := folderOf(t, authority.IstioFiles())
			roots := testkit.WatchRoots(t, mustOpen(t, settingsWithLog(dir, newLogged())))
			roots.Gets(t, patience, authority.Bundle().PEM())
			authority.Rotate()
			change(t, dir, authority.IstioFiles())
			roots.Gets(t, patience, authority.Bundle().PEM())
			authority.Rotate()
			writeFiles(t, dir, authority.IstioFiles())
			roots.Gets(t, patience, authority.Bundle().PEM())
		})
	}
}

func TestReturningFolderIsSeen(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	dir := folderOf(t, authority.IstioFiles())
	log := newLogged()
	roots := testkit.WatchRoots(t, mustOpen(t, settingsWithLog(dir, log)))
	roots.Gets(t, patience, authority.Bundle().PEM())
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if text := log.next(t); !strings.Contains(text, "no such file") {
		t.Errorf("logged %q", text)
	}
	authority.Rotate()
	if err := os.Rename(folderOf(t, authority.IstioFiles()), dir); err != nil {
		t.Fatal(err)
	}
	roots.Gets(t, patience, authority.Bundle().PEM())
}

func TestLinkChainIsWatchedThroughEachFolder(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	first := folderOf(t, authority.IstioFiles())
	versions, dir := folderOf(t, nil), folderOf(t, nil)
	link(t, first, filepath.Join(versions, "current"))
	for name := range authority.IstioFiles() {
		link(t, filepath.Join(versions, "current", name), filepath.Join(dir, name))
	}
	roots := testkit.WatchRoots(t, mustOpen(t, settingsWithLog(dir, newLogged())))
	roots.Gets(t, patience, authority.Bundle().PEM())
	for range 3 {
		authority.Rotate()
		link(t, folderOf(t, authority.IstioFiles()), filepath.Join(versions, "current"))
		roots.Gets(t, patience, authority.Bundle().PEM())
	}
}

func TestPollFindsChangeWithoutEvents(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	dir := folderOf(t, authority.IstioFiles())
	c := unwatched(dir, newLogged())
	if err := c.start(filewatch.Options{Poll: minPoll, PollOnly: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	roots := testkit.WatchRoots(t, c)
	roots.Gets(t, patience, authority.Bundle().PEM())
	authority.Rotate()
	writeFiles(t, dir, authority.IstioFiles())
	roots.Gets(t, patience, authority.Bundle().PEM())
}
