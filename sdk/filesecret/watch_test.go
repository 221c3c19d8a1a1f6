package filesecret_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/filesecret"
)

// place is a folder of files with a way to change them.
type place struct {
	dir  string // where the source looks
	swap func(f files) error
}

func at(elements ...string) string { return filepath.Join(elements...) }

// mount lays files out as Kubernetes does: key.pem -> ..data/key.pem, ..data ->
// ..2026_1, and a change renames another ..data over it.
func mount(t *testing.T, f files) place {
	t.Helper()
	dir := folder(t, nil)
	generation := 0
	swap := func(f files) error {
		generation++
		real := fmt.Sprintf("..2026_%d", generation)
		err := os.Mkdir(at(dir, real), 0o755)
		if err == nil {
			err = f.writeTo(at(dir, real))
		}
		if err == nil {
			err = link(real, at(dir, "..data"))
		}
		if err == nil {
			err = os.RemoveAll(at(dir, fmt.Sprintf("..2026_%d", generation-1)))
		}
		return err
	}
	must(t, swap(f))
	for name := range f {
		must(t, link(at("..data", name), at(dir, name)))
	}
	return place{dir, swap}
}

// places are the ways in which files are changed, in a row of any length.
var places = map[string]func(*testing.T, files) place{
	"rewritten-in-place": func(t *testing.T, f files) place {
		dir := folder(t, f)
		return place{dir, func(f files) error { return f.writeTo(dir) }}
	},
	"replaced-by-rename": func(t *testing.T, f files) place {
		dir := folder(t, f)
		return place{dir, func(f files) error { return renameInto(dir, f, "key.pem", "cert-chain.pem", "root-cert.pem") }}
	},
	"certificate-first": func(t *testing.T, f files) place {
		dir := folder(t, f)
		return place{dir, func(f files) error { return renameInto(dir, f, "root-cert.pem", "cert-chain.pem", "key.pem") }}
	},
	"removed-and-made-again": func(t *testing.T, f files) place {
		dir := folder(t, f)
		return place{dir, func(f files) error {
			for name := range f {
				if err := os.Remove(at(dir, name)); err != nil {
					return err
				}
			}
			return f.writeTo(dir)
		}}
	},
	"folder-removed-and-made-again": func(t *testing.T, f files) place {
		dir := at(folder(t, nil), "certs")
		swap := func(f files) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			return f.writeTo(dir)
		}
		must(t, swap(f))
		return place{dir, swap}
	},
	"data-swaps": mount,
	"link-to-another-folder": func(t *testing.T, f files) place {
		above := folder(t, nil)
		swap := func(f files) error { return link(folder(t, f), at(above, "certs")) }
		must(t, swap(f))
		return place{at(above, "certs"), swap}
	},
	"chain-of-links": func(t *testing.T, f files) place {
		above := folder(t, nil)
		must(t, os.Mkdir(at(above, "folder"), 0o700), link("second", at(above, "first")), link("./folder/../third", at(above, "second")))
		swap := func(f files) error { return link(folder(t, f), at(above, "third")) }
		must(t, swap(f))
		return place{at(above, "first"), swap}
	},
	"linked-parents": func(t *testing.T, f files) place {
		above := folder(t, nil)
		swap := func(f files) error {
			real := folder(t, nil)
			if err := os.MkdirAll(at(real, "a", "certs"), 0o700); err != nil {
				return err
			}
			if err := f.writeTo(at(real, "a", "certs")); err != nil {
				return err
			}
			return link(real, at(above, "parent"))
		}
		must(t, swap(f))
		return place{at(above, "parent", "a", "certs"), swap}
	},
	"each-file-a-link": func(t *testing.T, f files) place {
		dir := folder(t, nil)
		swap := func(f files) error {
			real := folder(t, f)
			for name := range f {
				if err := link(at(real, name), at(dir, name)); err != nil {
					return err
				}
			}
			return nil
		}
		must(t, swap(f))
		return place{dir, swap}
	},
}

// renameInto replaces the files one after the other.
func renameInto(dir string, f files, order ...string) error {
	for _, name := range order {
		if err := (files{name + ".new": f[name]}).writeTo(dir); err != nil {
			return err
		}
		if err := os.Rename(at(dir, name+".new"), at(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func TestManyChangesAreEachSeenByEvents(t *testing.T) {
	for name, lay := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allSeen(t, lay, filesecret.Config{}, patience) // the next poll is an hour away
		})
	}
}

func TestManyChangesAreEachSeenByPolling(t *testing.T) {
	const poll = 3 * time.Millisecond
	for name, lay := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allSeen(t, lay, filesecret.Config{NoEvents: true, Poll: poll}, 5*time.Second) // half of the default
		})
	}
}

// allSeen makes changes and demands that each is seen, and half of them within limit.
func allSeen(t *testing.T, lay func(*testing.T, files) place, cfg filesecret.Config, limit time.Duration) {
	t.Helper()
	changes := 30
	if testing.Short() {
		changes = 1
	}
	authority := catest.NewCA(catest.Options{Intermediates: 1})
	p := lay(t, issue(t, authority))
	cfg.Secrets = specs(p.dir)
	cfg.Debounce = time.Millisecond
	s := serving(t, cfg)
	var took []time.Duration
	for n := range changes {
		authority.Rotate()
		next := issue(t, authority)
		begin := time.Now()
		must(t, p.swap(next))
		s.sees(fmt.Sprintf("change %d", n+1), next)
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	t.Logf("%d of %d seen, the median after %s, the slowest after %s", changes, changes, took[changes/2], took[changes-1])
	// Beside other programs one change may take longer.
	if took[changes/2] > limit {
		t.Errorf("the median change was seen after %s, not within %s", took[changes/2], limit)
	}
}

func TestHalfReplacedPairKeepsOldPair(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	old, next := issue(t, authority), issue(t, authority)
	for _, order := range [][]string{{"key.pem", "cert-chain.pem"}, {"cert-chain.pem", "key.pem"}} {
		dir := folder(t, old)
		s := serve(t, dir)
		must(t, renameInto(dir, next, order[0]))
		s.says("is not the key of the first certificate")
		if got := s.held("default"); string(got.Chain) != string(old["cert-chain.pem"]) || string(got.Key) != string(old["key.pem"]) {
			t.Errorf("%s first: another pair is served", order[0])
		}
		must(t, renameInto(dir, next, order[1]))
		s.sees("the whole pair", next)
	}
}

func TestChangesWithinDebounceAreOne(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	authority := catest.NewCA(catest.Options{})
	dir := folder(t, issue(t, authority))
	const debounce = 300 * time.Millisecond
	s := serving(t, filesecret.Config{Secrets: specs(dir), Debounce: debounce})
	began := time.Now()
	var last files
	for range 20 {
		last = maps.Clone(issue(t, authority))
		must(t, last.writeTo(dir))
	}
	s.sees("the last", last)
	// On a busy machine the changes take longer than the time to settle, and more is right.
	took := time.Since(began)
	if n := s.Status()[1].Rotations; n > 2+int(took/debounce) {
		t.Errorf("20 changes within %s were served as %d", took, n)
	}
}

func TestLateFilesAreServed(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	dir := at(folder(t, nil), "not", "yet")
	s := serve(t, dir)
	f := issue(t, authority)
	must(t, os.MkdirAll(dir, 0o700), f.writeTo(dir))
	s.sees("the first", f)
}
