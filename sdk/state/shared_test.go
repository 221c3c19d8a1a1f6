//go:build unix

package state_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

const nameA = "a.example.org"

// sharedFolder is a folder that machines share.
type sharedFolder struct {
	t    testing.TB
	path string
	key  []byte
}

func newSharedFolder(t *testing.T) *sharedFolder {
	path := filepath.Join(t.TempDir(), "shared")
	must(t, os.Mkdir(path, 0o700))
	return &sharedFolder{t, path, newKey(t)}
}

// machine returns the folder as another machine sees it.
func (f *sharedFolder) machine() *state.Shared {
	f.t.Helper()
	s, err := state.OpenShared(f.path, f.key, slog.New(slog.DiscardHandler))
	must(f.t, err)
	return s
}

func (f *sharedFolder) files(pattern string) []string {
	all, err := filepath.Glob(filepath.Join(f.path, "??", pattern))
	must(f.t, err)
	return all
}

func entry(name string, days int) secret.Entry {
	now := time.Unix(1_800_000_000, 0).UTC()
	return secret.Entry{Name: name, Renew: now.AddDate(0, 0, days), Ends: now.AddDate(0, 0, 2*days)}
}

func content(text string) secret.Record {
	return secret.Record{Identity: "dns:" + nameA, Authority: "ca", Content: []byte(text)}
}

// follow collects the changes that a machine sees.
func follow(t *testing.T, s *state.Shared) (get func() []string, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var all []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = s.Changes(ctx, func(e secret.Entry, deleted bool) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, fmt.Sprintf("%s %t %s", e.Name, deleted, e.Ends.Format(time.DateOnly)))
			})
			time.Sleep(time.Second)
		}
	}()
	get = func() []string {
		mu.Lock()
		defer mu.Unlock()
		got := all
		all = nil
		slices.Sort(got)
		return got
	}
	return get, func() { cancel(); <-done }
}

func TestRecordOfOneMachineIsThatOfTheOthers(t *testing.T) {
	f := newSharedFolder(t)
	synctest.Test(t, func(t *testing.T) {
		a, b, ctx := f.machine(), f.machine(), t.Context()
		must(t, a.Store(ctx, entry(nameA, 10), content("one")))
		index, err := b.Index(ctx)
		if err != nil || len(index) != 1 || index[0] != entry(nameA, 10) {
			t.Fatalf("%v, %v", index, err)
		}
		changes, stop := follow(t, b)
		defer stop()
		for i, step := range []struct {
			do   func() error
			want []string
		}{
			{func() error { return nil }, nil},
			{func() error { return a.Store(ctx, entry(nameA, 20), content("two")) }, []string{nameA + " false 2027-02-24"}},
			{func() error { return a.Store(ctx, secret.Entry{Name: "b.example.org"}, content("order")) }, []string{"b.example.org false 0001-01-01"}},
			{func() error { return a.Delete(ctx, nameA) }, []string{nameA + " true 0001-01-01"}},
			{func() error { return a.Delete(ctx, nameA) }, nil},
		} {
			must(t, step.do())
			time.Sleep(2500 * time.Millisecond)
			if got := changes(); !slices.Equal(got, step.want) {
				t.Errorf("step %d: %q, want %q", i, got, step.want)
			}
		}
		got, err := b.Load(ctx, "b.example.org")
		if err != nil || string(got.Content) != "order" || got.Authority != "ca" {
			t.Errorf("%v, %v", got, err)
		}
		if got, err := b.Load(ctx, nameA); err != nil || len(got.Content) != 0 {
			t.Errorf("a deleted record: %v, %v", got, err)
		}
		if strings.Contains(fmt.Sprintf("%v %#v %+v", a, a, a), string(f.key)) {
			t.Error("the key is printed")
		}
	})
	if left := f.files(".*"); len(left) != 0 {
		t.Errorf("%q are left", left)
	}
}

// Where the file system has coarse times, a record can be replaced in the tick of its own.
func TestRecordReplacedInOneTickIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSharedFolder(t)
		there := f.machine()
		get, stop := follow(t, f.machine())
		defer stop()
		must(t, there.Store(t.Context(), entry(nameA, 1), content("one")))
		time.Sleep(time.Minute)
		file := f.files("*")[0]
		first, err := os.Lstat(file)
		must(t, err)
		must(t, there.Store(t.Context(), entry(nameA, 2), content("two")))
		must(t, os.Chtimes(file, time.Time{}, first.ModTime()))
		must(t, os.Chtimes(filepath.Dir(file), time.Time{}, time.Unix(1, 0))) // another than before
		time.Sleep(time.Minute)
		if second, err := os.Lstat(file); err != nil || second.Size() != first.Size() || !second.ModTime().Equal(first.ModTime()) {
			t.Fatalf("%v: the files differ: %v, %v", err, first, second)
		}
		if got := get(); len(got) != 2 {
			t.Errorf("saw %q", got)
		}
	})
}

func TestOneMachineHasAClaim(t *testing.T) {
	f := newSharedFolder(t)
	var claimed, inside atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		s := f.machine()
		for range 3 {
			wg.Go(func() {
				for range 25 {
					c, err := s.Claim(t.Context(), nameA)
					if err != nil {
						if !errors.Is(err, secret.ErrClaimed) || ca.ReasonFor(err) != ca.Unavailable || ca.RetryAfter(err) == 0 {
							t.Error(err)
						}
						continue
					}
					if inside.Add(1) != 1 || !c.Held() {
						t.Error("two machines have the claim")
					}
					claimed.Add(1)
					inside.Add(-1)
					must(t, c.Release(t.Context()))
				}
			})
		}
	}
	wg.Wait()
	if claimed.Load() == 0 {
		t.Error("no machine got the claim")
	}
	if left := append(f.files(".*"), f.files("*.claim*")...); len(left) != 0 {
		t.Errorf("%q are left", left)
	}
}

// The first calls of a machine may be several at once: each of them may make the mark.
func TestFirstCallsTogetherMakeOneMark(t *testing.T) {
	for range 100 {
		f := newSharedFolder(t)
		s := f.machine()
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if _, err := s.Load(t.Context(), nameA); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

// kill ends a claim as the death of its machine does: its file stays, and is counted in no more.
func (f *sharedFolder) kill(c secret.Claim) {
	f.t.Helper()
	claims := f.files("*.claim")
	if len(claims) != 1 {
		f.t.Fatalf("%q", claims)
	}
	text, err := os.ReadFile(claims[0])
	must(f.t, err)
	must(f.t, c.Release(context.Background()))
	must(f.t, os.WriteFile(claims[0], text, 0o600))
}

func TestOneMachineTakesOverAClaimThatRanOut(t *testing.T) {
	f := newSharedFolder(t)
	synctest.Test(t, func(t *testing.T) {
		c, err := f.machine().Claim(t.Context(), nameA)
		must(t, err)
		var others []*state.Shared
		for range 4 {
			others = append(others, f.machine())
		}
		try := func() (got []secret.Claim) {
			var mu sync.Mutex
			var wg sync.WaitGroup
			for _, s := range others {
				wg.Go(func() {
					c, err := s.Claim(t.Context(), nameA)
					if err == nil {
						mu.Lock()
						got = append(got, c)
						mu.Unlock()
					} else if !errors.Is(err, secret.ErrClaimed) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			return got
		}
		for range 60 { // it is kept for as long as its machine lives
			if got := try(); len(got) != 0 || !c.Held() {
				t.Fatal("a claim that is kept was taken over")
			}
			time.Sleep(time.Second)
		}
		f.kill(c)
		began := time.Now()
		var got []secret.Claim
		for len(got) == 0 && time.Since(began) < time.Minute {
			time.Sleep(time.Second)
			got = try()
		}
		if took := time.Since(began); len(got) != 1 || took < 12*time.Second || took > 18*time.Second {
			t.Fatalf("%d machines took the claim over after %s", len(got), took)
		}
		for range 40 {
			time.Sleep(time.Second)
			if more := try(); len(more) != 0 || !got[0].Held() {
				t.Fatal("the claim of the successor is not kept")
			}
		}
		must(t, got[0].Release(t.Context()))
		if got = try(); len(got) != 1 {
			t.Fatalf("%d machines have the claim", len(got))
		}
		must(t, got[0].Release(t.Context()))
	})
	if left := append(f.files(".*"), f.files("*.claim*")...); len(left) != 0 {
		t.Errorf("%q are left", left)
	}
}

// A machine is killed at each step of a takeover.
func TestTakeoverThatWasKilledBlocksNoName(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, claim, successor string){
		"after its file was made": func(t *testing.T, claim, next string) {
			must(t, os.Rename(next, filepath.Join(filepath.Dir(claim), ".new-ff")))
		},
		"after its file was linked": func(*testing.T, string, string) {},
		"after two, one by one": func(t *testing.T, _, next string) {
			text, err := os.ReadFile(next)
			must(t, err)
			id := strings.Fields(string(text))[3]
			third := strings.Replace(string(text), id, strings.Repeat("ab", 16), 1)
			first, _, _ := strings.Cut(next, ".after-")
			must(t, os.WriteFile(first+".after-"+id, []byte(third), 0o600))
		},
		"a foreign file": func(t *testing.T, claim, _ string) { must(t, os.WriteFile(claim, []byte("not a claim"), 0o600)) },
		"a huge file":    func(t *testing.T, claim, _ string) { must(t, os.WriteFile(claim, make([]byte, 1<<20), 0o600)) },
		"a link": func(t *testing.T, claim, _ string) {
			must(t, os.Remove(claim))
			must(t, os.Symlink("/dev/zero", claim))
		},
		"a file of a crash": func(t *testing.T, claim, _ string) { must(t, os.Truncate(claim, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newSharedFolder(t)
			synctest.Test(t, func(t *testing.T) {
				dead, err := f.machine().Claim(t.Context(), nameA)
				must(t, err)
				f.kill(dead)
				claim := f.files("*.claim")[0]
				text, err := os.ReadFile(claim)
				must(t, err)
				id := strings.Fields(string(text))[3]
				next := claim + ".after-" + id
				must(t, os.WriteFile(next, []byte(strings.Replace(string(text), id, strings.Repeat("cd", 16), 1)), 0o600))
				leave(t, claim, next)
				s, began := f.machine(), time.Now()
				var c secret.Claim
				for c == nil && time.Since(began) < time.Minute {
					if c, err = s.Claim(t.Context(), nameA); err != nil && !errors.Is(err, secret.ErrClaimed) && ca.ReasonFor(err) != ca.Unavailable {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				if c == nil || time.Since(began) > 20*time.Second {
					t.Fatalf("%v after %s", err, time.Since(began))
				}
				if foreign := s.Status().Foreign == 1; foreign != strings.HasPrefix(name, "a ") {
					t.Errorf("%+v", s.Status())
				}
				time.Sleep(20 * time.Second)
				if _, err := f.machine().Claim(t.Context(), nameA); !errors.Is(err, secret.ErrClaimed) || !c.Held() {
					t.Errorf("another machine has it, too: %v", err)
				}
				must(t, c.Release(t.Context()))
				if left := f.files("*.claim"); len(left) != 0 {
					t.Errorf("%q are left", left)
				}
			})
		})
	}
}

// What was judged as given up may be released, and claimed anew, before it is taken over.
func TestClaimMadeMeanwhileIsNotTakenOver(t *testing.T) {
	f := newSharedFolder(t)
	synctest.Test(t, func(t *testing.T) {
		a, b := f.machine(), f.machine()
		for range 3 {
			c, err := a.Claim(t.Context(), nameA)
			must(t, err)
			for range 14 {
				if _, err := b.Claim(t.Context(), nameA); !errors.Is(err, secret.ErrClaimed) {
					t.Fatal(err)
				}
				time.Sleep(500 * time.Millisecond)
			}
			must(t, c.Release(t.Context()))
		}
		c, err := a.Claim(t.Context(), nameA)
		must(t, err)
		if _, err := b.Claim(t.Context(), nameA); !errors.Is(err, secret.ErrClaimed) {
			t.Error(err)
		}
		must(t, c.Release(t.Context()))
	})
}
