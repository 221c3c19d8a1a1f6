//go:build unix

package state_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestDamagedSharedRecordIsRefusedAlone(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, file, other string)
		says  string
	}{
		"torn":           {func(t *testing.T, file, _ string) { must(t, os.Truncate(file, 200)) }, "cannot be decrypted"},
		"cut":            {func(t *testing.T, file, _ string) { must(t, os.Truncate(file, 30)) }, "ends too early"},
		"open to others": {func(t *testing.T, file, _ string) { must(t, os.Chmod(file, 0o604)) }, "chmod go-rwx"},
		"huge":           {func(t *testing.T, file, _ string) { must(t, os.Truncate(file, 5<<20)) }, "are allowed"},
		"a link": {func(t *testing.T, file, other string) {
			must(t, os.Remove(file))
			must(t, os.Symlink(other, file))
		}, "not a regular file"},
		"a pipe": {func(t *testing.T, file, _ string) {
			must(t, os.Remove(file))
			must(t, syscall.Mkfifo(file, 0o600))
		}, "not a regular file"},
		"another record in its place": {func(t *testing.T, file, other string) {
			text, err := os.ReadFile(other)
			must(t, err)
			must(t, os.WriteFile(file, text, 0o600))
		}, "under the name of another"},
		"foreign": {func(t *testing.T, file, _ string) { must(t, os.WriteFile(file, []byte("hello"), 0o600)) }, "does not begin"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSharedFolder(t)
			s := f.machine()
			must(t, s.Store(t.Context(), entry("b.example.org", 1), content("two")))
			other := f.files("*.state")[0]
			must(t, s.Store(t.Context(), entry(nameA, 1), content(strings.Repeat("one", 100))))
			file := f.files("*.state")[0]
			if file == other {
				file = f.files("*.state")[1]
			}
			c.spoil(t, file, other)
			got, err := s.Load(t.Context(), nameA)
			if err == nil || len(got.Content) != 0 || !strings.Contains(err.Error(), c.says) || ca.ReasonFor(err) == ca.Unavailable {
				t.Errorf("%v, %v; want %q", got, err, c.says)
			}
			if got := s.Status(); got.Damaged != 1 || got.Foreign != 0 {
				t.Errorf("%+v", got)
			}
			if got, err := s.Load(t.Context(), "b.example.org"); err != nil || string(got.Content) != "two" {
				t.Errorf("the other one: %v, %v", got, err)
			}
			if index, err := s.Index(t.Context()); err != nil || len(index) == 0 || len(index) > 2 {
				t.Errorf("the index: %v, %v", index, err)
			}
			must(t, s.Store(t.Context(), entry(nameA, 2), content("new")))
			if got, err := s.Load(t.Context(), nameA); err != nil || string(got.Content) != "new" {
				t.Errorf("it cannot be replaced: %v, %v", got, err)
			}
		})
	}
}

func TestRecordOfAnotherKindIsNotShared(t *testing.T) {
	f := newSharedFolder(t)
	s := f.machine()
	must(t, s.Store(t.Context(), entry(nameA, 1), content("one")))
	file := f.files("*.state")[0]
	folder, path := newFolder(t, f.key)
	store(t, folder, nameA, content("of a folder"))
	text, err := os.ReadFile(filepath.Join(path, filepath.Base(file)))
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
	if _, err := s.Load(t.Context(), nameA); err == nil || !strings.Contains(err.Error(), "not a record of a shared folder") {
		t.Error(err)
	}
	must(t, s.Store(t.Context(), entry(nameA, 1), content("one")))
	text, err = os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(path, filepath.Base(file)), text, 0o600))
	if _, err := folder.Load(t.Context(), nameA); err == nil {
		t.Error("a folder took a shared record")
	}
}

func TestFolderOpenToOthersIsRefused(t *testing.T) {
	f := newSharedFolder(t)
	must(t, os.Chmod(f.path, 0o755))
	if _, err := f.machine().Index(t.Context()); err == nil || ca.ReasonFor(err) == ca.Unavailable || !strings.Contains(err.Error(), "chmod go-rwx") {
		t.Error(err)
	}
}

// Machines with different keys would replace each other's records.
func TestFolderOfAnotherKeyIsRefused(t *testing.T) {
	f := newSharedFolder(t)
	must(t, f.machine().Store(t.Context(), entry(nameA, 1), content("one")))
	f.key = newKey(t)
	s := f.machine()
	if _, err := s.Index(t.Context()); err == nil || ca.ReasonFor(err) == ca.Unavailable || !strings.Contains(err.Error(), "made with another key") {
		t.Error(err)
	}
	if _, err := s.Claim(t.Context(), nameA); ca.ReasonFor(err) != ca.Unavailable || errors.Is(err, secret.ErrClaimed) {
		t.Error(err)
	}
}

// The folder below a mount that is away is another one, or none.
func TestFolderThatIsAwayIsNoAbsentRecord(t *testing.T) {
	for name, below := range map[string]func(t *testing.T, path string){
		"none":  func(*testing.T, string) {},
		"empty": func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) },
		"another": func(t *testing.T, path string) {
			other := newSharedFolder(t)
			must(t, other.machine().Store(t.Context(), entry("c.example.org", 1), content("other")))
			must(t, os.Rename(other.path, path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSharedFolder(t)
			synctest.Test(t, func(t *testing.T) {
				s := f.machine()
				must(t, s.Store(t.Context(), entry(nameA, 1), content("one")))
				claim, err := s.Claim(t.Context(), nameA)
				must(t, err)
				_, err = s.Index(t.Context())
				must(t, err)
				changes, stop := follow(t, s)
				defer stop()
				must(t, os.Rename(f.path, f.path+".away"))
				below(t, f.path)
				_, load := s.Load(t.Context(), nameA)
				_, index := s.Index(t.Context())
				_, claimed := s.Claim(t.Context(), nameA)
				for what, err := range map[string]error{
					"load": load, "index": index, "claim": claimed,
					"store": s.Store(t.Context(), entry(nameA, 1), content("one")), "delete": s.Delete(t.Context(), nameA),
				} {
					if ca.ReasonFor(err) != ca.Unavailable || errors.Is(err, fs.ErrNotExist) || errors.Is(err, secret.ErrClaimed) {
						t.Errorf("%s: %v", what, err)
					}
				}
				time.Sleep(20 * time.Second)
				if got := changes(); len(got) != 0 {
					t.Errorf("changes %q", got)
				}
				if claim.Held() {
					t.Error("the claim could not be kept, and is held")
				}
				must(t, os.RemoveAll(f.path))
				must(t, os.Rename(f.path+".away", f.path))
				other := f.machine()
				var next secret.Claim
				for range 30 {
					if next, err = other.Claim(t.Context(), nameA); err == nil {
						break
					}
					time.Sleep(time.Second)
				}
				must(t, err)
				must(t, claim.Release(t.Context())) // it ends nothing but itself
				if _, err := s.Claim(t.Context(), nameA); !errors.Is(err, secret.ErrClaimed) || !next.Held() {
					t.Error("the claim of the successor is gone:", err)
				}
				must(t, next.Release(t.Context()))
				if got, err := s.Load(t.Context(), nameA); err != nil || string(got.Content) != "one" {
					t.Errorf("%v, %v", got, err)
				}
			})
		})
	}
}

// A Store that is killed leaves the record of before, or the new one, and no file for ever.
func TestKilledStoreLeavesAWholeRecord(t *testing.T) {
	f := newSharedFolder(t)
	synctest.Test(t, func(t *testing.T) {
		s := f.machine()
		must(t, s.Store(t.Context(), entry(nameA, 1), content("one")))
		file := f.files("*.state")[0]
		text, err := os.ReadFile(file)
		must(t, err)
		for cut := 0; cut <= len(text); cut += 40 {
			must(t, os.WriteFile(filepath.Join(filepath.Dir(file), fmt.Sprintf(".new-%032x", cut)), text[:cut], 0o600))
			if got, err := s.Load(t.Context(), nameA); err != nil || string(got.Content) != "one" {
				t.Fatalf("%v, %v", got, err)
			}
		}
		changes, stop := follow(t, s)
		defer stop()
		time.Sleep(25 * time.Minute)
		if got := changes(); len(got) != 1 {
			t.Errorf("changes %q", got)
		}
		if left := f.files(".new-*"); len(left) != 0 {
			t.Errorf("%d unfinished files are left", len(left))
		}
	})
}

// A call that hung must not replace what the successor of its claim has stored meanwhile.
func TestCallThatIsTooLateChangesNothing(t *testing.T) {
	f := newSharedFolder(t)
	s := f.machine()
	must(t, s.Store(t.Context(), entry(nameA, 2), content("two")))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Store(over, entry(nameA, 1), content("one")); ca.ReasonFor(err) != ca.Unavailable {
		t.Error(err)
	}
	if err := s.Delete(over, nameA); ca.ReasonFor(err) != ca.Unavailable {
		t.Error(err)
	}
	if got, err := s.Load(t.Context(), nameA); err != nil || string(got.Content) != "two" {
		t.Errorf("%v, %v", got, err)
	}
	if left := f.files(".*"); len(left) != 0 {
		t.Errorf("%q are left", left)
	}
}

// endsLate is a context that ends once it was looked at so often.
type endsLate struct {
	context.Context
	looks int
}

func (e *endsLate) Err() error {
	if e.looks--; e.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// The caller of an Index that hung in its last subfolder has gone.
func TestIndexThatIsTooLateLeavesEachRecordToChanges(t *testing.T) {
	f := newSharedFolder(t)
	synctest.Test(t, func(t *testing.T) {
		s := f.machine()
		must(t, s.Store(t.Context(), entry(nameA, 1), content("one")))
		if index, err := s.Index(&endsLate{t.Context(), 256}); err == nil {
			t.Errorf("%v", index)
		}
		changes, stop := follow(t, s)
		defer stop()
		time.Sleep(2 * time.Second)
		if got := changes(); len(got) != 1 {
			t.Errorf("changes %q", got)
		}
	})
}

func BenchmarkSharedFolderWithoutChanges(b *testing.B) {
	const names = 10_000
	f := &sharedFolder{t: b, path: filepath.Join(b.TempDir(), "shared"), key: []byte(strings.Repeat("0123456789abcdef", 4))}
	if err := os.Mkdir(f.path, 0o700); err != nil {
		b.Fatal(err)
	}
	s := f.machine()
	for i := range names {
		if err := s.Store(b.Context(), entry(fmt.Sprintf("n%d.example.org", i), 1), content(strings.Repeat("record", 500))); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("index", func(b *testing.B) {
		for b.Loop() {
			if index, err := s.Index(b.Context()); err != nil || len(index) != names {
				b.Fatal(len(index), err)
			}
		}
	})
	b.Run("look", func(b *testing.B) {
		looks := s.Looks(b.Context())
		looks()
		for b.Loop() {
			if n := looks(); n != 0 {
				b.Fatal(n)
			}
		}
	})
}
