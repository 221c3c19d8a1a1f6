package pluginhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// inFiles are settings with a password in a file, beside a file that only the provider reads.
type inFiles struct{ password, key string }

func (s inFiles) Resolve(context.Context, reference.Paths) (out reference.Resolved, err error) {
	word, err := os.ReadFile(s.password)
	if err != nil {
		return out, ca.Errorf(ca.Unavailable, "%w", err)
	}
	out.Settings, out.Files = map[string]any{"password": string(word)}, []string{s.password}
	return out, nil
}

func (s inFiles) Reread(ctx context.Context, paths reference.Paths) (reference.Resolved, error) {
	return s.Resolve(ctx, paths)
}

func (s inFiles) Files(reference.Paths) []string { return []string{s.password, s.key} }

// written are settings as an entry has them.
var written = map[string]any{"password": "in a file"}

// poll is time enough to see a changed file, and to offer it.
const poll = 15 * time.Second

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", []byte(content), 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// withPassword runs a provider that accepts the passwords that takes accepts; first is in the file.
func withPassword(t *testing.T, first string, takes func(f *fakeLife, password string) error, test func(t *testing.T, w *world, s inFiles)) {
	t.Helper()
	dir := t.TempDir()
	s := inFiles{filepath.Join(dir, "password"), filepath.Join(dir, "key")}
	put(t, s.password, first)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("good")
		w.takes = takes
		w.p.plan.settings, w.p.plan.entry.Settings = s, written
		w.p.Begin()
		synctest.Wait()
		time.Sleep(time.Second)
		test(t, w, s)
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

// onlySesame refuses all but sesame, and ends at what is deadly.
func onlySesame(f *fakeLife, password string) error {
	switch {
	case strings.HasPrefix(password, "sesame"):
		return nil
	case password == "deadly":
		f.end(errors.New("it panicked"))
		return ca.Errorf(ca.Unavailable, "EOF")
	case password == "denied":
		return ca.Errorf(ca.Denied, "not with that one")
	}
	return ca.Errorf(ca.Invalid, "%s is wrong", password)
}

func (w *world) expect(t *testing.T, lastSecret string, given ...string) {
	t.Helper()
	last := w.last()
	if s := w.p.Status(); s.State != Ready || (s.LastSecret == "") != (lastSecret == "") || !strings.Contains(s.LastSecret, lastSecret) {
		t.Errorf("%s, secret: %q, want %q", s.State, s.LastSecret, lastSecret)
	}
	if got := w.given(last); !reflect.DeepEqual(got, given) {
		t.Errorf("the last life was given %q, want %q", got, given)
	}
}

func (w *world) given(f *fakeLife) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(f.given)
}

func (w *world) crashes(t *testing.T) {
	t.Helper()
	w.last().end(errors.New("it crashed"))
	time.Sleep(poll)
	w.mustSign(t, "good")
}

// byCommand are settings with a password that a command prints: no file changes with it.
type byCommand struct{ password atomic.Pointer[string] }

func (s *byCommand) Resolve(context.Context, reference.Paths) (out reference.Resolved, err error) {
	out.Settings = map[string]any{"password": *s.password.Load()}
	return out, nil
}

func (s *byCommand) Reread(ctx context.Context, paths reference.Paths) (reference.Resolved, error) {
	return s.Resolve(ctx, paths)
}

func (s *byCommand) Files(reference.Paths) []string { return nil }

func TestRefusalIsForgottenWithTheSecretBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := &byCommand{}, newWorld("good")
		w.takes, w.p.plan.settings = onlySesame, s
		for i, step := range []struct{ password, refused string }{{"sesame", ""}, {"wrong", "wrong is wrong"}, {"sesame", ""}} {
			s.password.Store(&step.password)
			if i == 0 {
				w.p.Begin()
				time.Sleep(time.Second)
			} else {
				w.crashes(t)
			}
			if got := w.p.Status(); got.State != Ready || (got.LastSecret == "") != (step.refused == "") || !strings.Contains(got.LastSecret, step.refused) {
				t.Errorf("%s: %s, %q, want %q", step.password, got.State, got.LastSecret, step.refused)
			}
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestLifeAfterRefusedSecretGetsLastGoodOne(t *testing.T) {
	withPassword(t, "sesame-1", onlySesame, func(t *testing.T, w *world, s inFiles) {
		for _, word := range []string{"wrong-1", "wrong-2"} {
			put(t, s.password, word)
			time.Sleep(poll)
		}
		w.expect(t, "wrong-2 is wrong", "sesame-1", "wrong-1", "wrong-2")
		for range 2 {
			w.crashes(t)
			w.expect(t, "wrong-2 is wrong", "sesame-1")
		}
		put(t, s.password, "sesame-1")
		time.Sleep(poll)
		w.expect(t, "", "sesame-1")
		put(t, s.password, "sesame-2")
		time.Sleep(poll)
		w.expect(t, "", "sesame-1", "sesame-2")
		w.crashes(t)
		w.expect(t, "", "sesame-2")
	})
}

func TestSecretThatChangedWithoutLifeIsOfferedToNext(t *testing.T) {
	withPassword(t, "sesame-1", onlySesame, func(t *testing.T, w *world, s inFiles) {
		put(t, s.password, "wrong")
		w.crashes(t)
		w.expect(t, "wrong is wrong", "wrong", "sesame-1")
		put(t, s.password, "sesame-2")
		w.crashes(t)
		w.expect(t, "", "sesame-2")
		if w.starts() != 3 {
			t.Errorf("%d starts", w.starts())
		}
	})
}

func TestSecretThatEndsProviderIsNotGivenToNext(t *testing.T) {
	withPassword(t, "sesame-1", onlySesame, func(t *testing.T, w *world, s inFiles) {
		put(t, s.password, "deadly")
		time.Sleep(time.Hour)
		w.expect(t, "the provider ended when it got them: it panicked", "sesame-1")
		if w.starts() != 2 {
			t.Errorf("%d starts", w.starts())
		}
	})
}

func TestSecretDeniedByCAIsOfferedAgainLater(t *testing.T) {
	var allowed atomic.Bool
	takes := func(f *fakeLife, password string) error {
		if password == "denied" && allowed.Load() {
			return nil
		}
		return onlySesame(f, password)
	}
	withPassword(t, "sesame-1", takes, func(t *testing.T, w *world, s inFiles) {
		put(t, s.password, "denied")
		time.Sleep(time.Hour)
		if n := len(w.given(w.last())) - 1; n < 6 || n > 15 {
			t.Errorf("asked %d times in an hour", n)
		}
		allowed.Store(true)
		time.Sleep(11 * time.Minute)
		if s := w.p.Status(); s.LastSecret != "" {
			t.Errorf("still refused: %s", s.LastSecret)
		}
	})
}

// A password that was good may be revoked while a new one is refused for another reason.
func TestEverySecretIsOfferedIfNoneIsTaken(t *testing.T) {
	var good atomic.Value
	good.Store("sesame-1")
	takes := func(_ *fakeLife, password string) error {
		if password != good.Load() {
			return ca.Errorf(ca.Invalid, "%s is wrong", password)
		}
		return nil
	}
	withPassword(t, "sesame-1", takes, func(t *testing.T, w *world, s inFiles) {
		put(t, s.password, "sesame-2")
		time.Sleep(poll)
		w.expect(t, "sesame-2 is wrong", "sesame-1", "sesame-2")
		good.Store("none")
		w.last().end(errors.New("it crashed"))
		time.Sleep(time.Minute)
		good.Store("sesame-2")
		time.Sleep(probes.Most)
		w.mustSign(t, "good")
		w.expect(t, "", "sesame-2")
	})
}

func TestRefusedSecretIsOfferedAgainWhenOtherFileChangesOrByReload(t *testing.T) {
	withPassword(t, "sesame-1", onlySesame, func(t *testing.T, w *world, s inFiles) {
		put(t, s.password, "wrong")
		time.Sleep(time.Hour)
		w.expect(t, "wrong is wrong", "sesame-1", "wrong")
		put(t, s.key, "another")
		time.Sleep(time.Hour)
		w.expect(t, "wrong is wrong", "sesame-1", "wrong", "wrong")
		again := w.planThat("good")
		again.settings, again.entry.Settings = s, written
		if err := w.reload(t.Context(), again); err != nil {
			t.Error(err)
		}
		time.Sleep(poll)
		w.expect(t, "wrong is wrong", "sesame-1", "wrong", "wrong", "wrong")
	})
}

func TestNewBinaryGetsLastGoodSecret(t *testing.T) {
	for _, missing := range []bool{false, true} {
		withPassword(t, "sesame-1", onlySesame, func(t *testing.T, w *world, s inFiles) {
			put(t, s.password, "wrong")
			time.Sleep(poll)
			if missing {
				if err := os.Remove(s.password); err != nil {
					t.Fatal(err)
				}
			}
			next := w.planThat("good")
			next.settings, next.entry.Settings, next.sha256 = s, written, "another"
			if err := w.reload(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			if missing {
				w.expect(t, "", "sesame-1")
			} else {
				w.expect(t, "wrong is wrong", "wrong", "sesame-1")
			}
			w.crashes(t)
			if s := w.p.Status(); s.Reloads != 1 || s.SHA256 != "another" {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestOtherSettingsDoNotInheritSecrets(t *testing.T) {
	withPassword(t, "sesame-1", onlySesame, func(t *testing.T, w *world, s inFiles) {
		put(t, s.password, "wrong")
		time.Sleep(poll)
		next := w.planThat("better")
		next.settings, next.entry.Settings = s, map[string]any{"password": "in a file, and more"}
		if err := w.reload(t.Context(), next); err == nil || !strings.Contains(err.Error(), "wrong is wrong") {
			t.Errorf("got %v", err)
		}
		w.all()[0].end(errors.New("it crashed"))
		time.Sleep(poll)
		w.expect(t, "wrong is wrong", "sesame-1")
		if s := w.p.Status(); s.LastReload == "" {
			t.Error("the refused reload is forgotten")
		}
	})
}

func TestRefusedProviderIsStartedAgainWhenItsFileChanges(t *testing.T) {
	withPassword(t, "wrong", onlySesame, func(t *testing.T, w *world, s inFiles) {
		time.Sleep(poll)
		if got := w.p.Status(); got.State != Refused || w.starts() != 1 {
			t.Fatalf("%d starts, %+v", w.starts(), got)
		}
		put(t, s.key, "still wrong")
		time.Sleep(poll)
		if got := w.p.Status(); got.State != Refused || w.starts() != 2 {
			t.Fatalf("%d starts, %+v", w.starts(), got)
		}
		put(t, s.password, "sesame")
		time.Sleep(poll)
		w.expect(t, "", "sesame")
	})
}

// A file may change while the provider looks at what it was.
func TestFileChangedDuringRefusalIsNotMissed(t *testing.T) {
	var during atomic.Value
	during.Store("")
	takes := func(f *fakeLife, password string) error {
		if path, _ := during.Load().(string); path != "" {
			put(t, path, "sesame")
		}
		return onlySesame(f, password)
	}
	withPassword(t, "wrong", takes, func(t *testing.T, w *world, s inFiles) {
		during.Store(s.password)
		put(t, s.key, "start it again")
		time.Sleep(2 * poll)
		w.expect(t, "", "sesame")
	})
}

func TestStampsDistinguishVersionsOfFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	seen := []stamps{look([]string{path})}
	for range 3 {
		put(t, path, "same size")
		seen = append(seen, look([]string{path}))
	}
	for i, a := range seen {
		for j, b := range seen {
			if a.equal(b) != (i == j) {
				t.Errorf("%d and %d", i, j)
			}
		}
	}
	if seen[0].equal(nil) {
		t.Error("another list of files")
	}
}
