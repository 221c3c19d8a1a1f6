//go:build unix

package state_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

const nameB = "b.example.org"

// One file or subfolder that the disk cannot read, or that is of another kind, stops no other record.
func TestFileThatCannotBeReadStopsNoOtherRecord(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, s *state.Shared, file string) (mend func())
		says  string
		away  bool // it is unknown what the record has
	}{
		"damaged disk":  {fails(syscall.EIO), "input/output error", false},
		"another user":  {fails(syscall.EACCES), "permission denied", false},
		"a stale file":  {fails(syscall.ESTALE), "stale", true},
		"a folder":      {inPlace(false), "not a regular file", false},
		"its subfolder": {inPlace(true), "is not a folder", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSharedFolder(t)
			synctest.Test(t, func(t *testing.T) {
				var log logtest.Log
				s, err := state.OpenShared(f.path, f.key, log.Logger())
				must(t, err)
				other := f.machine()
				must(t, other.Store(t.Context(), entry(nameA, 1), content("one")))
				mend := c.spoil(t, s, f.files("*.state")[0])
				must(t, other.Store(t.Context(), entry(nameB, 1), content("two")))

				index, err := s.Index(t.Context())
				if err != nil || len(index) != 1 || index[0].Name != nameB {
					t.Fatalf("%v, %v", index, err)
				}
				if _, err := s.Load(t.Context(), nameA); err == nil || !strings.Contains(err.Error(), c.says) || (ca.ReasonFor(err) == ca.Unavailable) != c.away {
					t.Error(err)
				}
				changes, stop := follow(t, s)
				defer stop()
				must(t, other.Store(t.Context(), entry(nameB, 2), content("three")))
				time.Sleep(time.Minute)
				if got := changes(); !slices.Equal(got, []string{nameB + " false 2027-01-19"}) {
					t.Errorf("changes %q", got)
				}
				if n := strings.Count(log.String(), "cannot be used as records"); n != 1 {
					t.Errorf("it was reported %d times:\n%s", n, &log)
				}
				mend()
				time.Sleep(3 * time.Second)
				if got := changes(); !slices.Equal(got, []string{nameA + " false 2027-01-17"}) {
					t.Errorf("once it is mended: changes %q", got)
				}
			})
		})
	}
}

// fails has the reads of a file fail until it is mended.
func fails(with error) func(*testing.T, *state.Shared, string) func() {
	return func(_ *testing.T, s *state.Shared, file string) func() {
		var mended atomic.Bool
		s.SpoilReads(func(got string) error {
			if got != filepath.Base(file) || mended.Load() {
				return nil
			}
			return with
		})
		return func() { mended.Store(true) }
	}
}

// inPlace puts a folder in the place of a file, or a file in that of its subfolder.
func inPlace(sub bool) func(*testing.T, *state.Shared, string) func() {
	return func(t *testing.T, _ *state.Shared, file string) func() {
		if sub {
			file = filepath.Dir(file)
		}
		must(t, os.Rename(file, file+".moved"))
		if sub {
			must(t, os.WriteFile(file, nil, 0o600))
		} else {
			must(t, os.MkdirAll(filepath.Join(file, "full"), 0o700))
		}
		return func() {
			must(t, os.RemoveAll(file))
			must(t, os.Rename(file+".moved", file))
		}
	}
}

// When each file fails because the folder is away, none is taken for a damaged record.
func TestFolderThatGoesAwayInALookHasNoDamagedRecords(t *testing.T) {
	f := newSharedFolder(t)
	s := f.machine()
	must(t, s.Store(t.Context(), entry(nameA, 1), content("one")))
	mark := filepath.Join(f.path, "countersign-shared")
	s.SpoilReads(func(string) error {
		_ = os.Rename(mark, mark+".away")
		return syscall.EIO
	})
	if _, err := s.Index(t.Context()); ca.ReasonFor(err) != ca.Unavailable {
		t.Error(err)
	}
	must(t, os.Rename(mark+".away", mark))
	if _, err := s.Load(t.Context(), nameA); ca.ReasonFor(err) != ca.Unavailable {
		t.Error(err)
	}
	if got := s.Status(); got.Damaged != 0 {
		t.Errorf("%+v", got)
	}
}

func TestFolderInTheWayOfARecordIsMovedAside(t *testing.T) {
	f := newSharedFolder(t)
	s := f.machine()
	must(t, s.Store(t.Context(), entry(nameA, 1), content("one")))
	inPlace(false)(t, s, f.files("*.state")[0])
	must(t, s.Store(t.Context(), entry(nameA, 2), content("two")))
	if got, err := s.Load(t.Context(), nameA); err != nil || string(got.Content) != "two" {
		t.Errorf("%v, %v", got, err)
	}
}

// A claim that the disk cannot read is moved aside, as any file in that place that is not one.
func TestClaimOnADamagedDiskBlocksNoName(t *testing.T) {
	f := newSharedFolder(t)
	synctest.Test(t, func(t *testing.T) {
		dead, err := f.machine().Claim(t.Context(), nameA)
		must(t, err)
		f.kill(dead)
		s, began := f.machine(), time.Now()
		fails(syscall.EIO)(t, s, f.files("*.claim")[0])
		var c secret.Claim
		for c == nil && time.Since(began) < time.Minute {
			if c, err = s.Claim(t.Context(), nameA); ca.ReasonFor(err) != ca.Unavailable && err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if took := time.Since(began); c == nil || took < 15*time.Second || took > 20*time.Second {
			t.Fatalf("%v after %s", err, took)
		}
		must(t, c.Release(t.Context()))
	})
}

// The clock of the bubble is that of a machine, which is decades off.
func TestClaimHasTheTimeOfTheFileServer(t *testing.T) {
	f, began := newSharedFolder(t), time.Now().Add(-time.Minute)
	synctest.Test(t, func(t *testing.T) {
		c, err := f.machine().Claim(t.Context(), nameA)
		must(t, err)
		if made := c.Made(); made.Before(began) || made.After(began.Add(time.Hour)) {
			t.Errorf("made at %s", made)
		}
		must(t, c.Release(t.Context()))
	})
}
