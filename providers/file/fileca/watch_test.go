package fileca

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func settingsWithLog(dir string, log *logged) Settings {
	return Settings{Dir: dir, PollInterval: time.Hour, Log: slog.New(log)} // events alone must do
}

// unwatched is a CA that nothing was read of yet.
func unwatched(dir string, log *logged) *CA {
	return &CA{dir: dir, limits: limits{maxTTL: defaultTTL, poll: time.Hour}, log: slog.New(log), now: time.Now, done: make(chan struct{})}
}

// looking is a CA whose folder is read when the test triggers it.
func looking(t *testing.T, dir string, log *logged) *watch {
	t.Helper()
	c := unwatched(dir, log)
	files, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.take(files); err != nil {
		t.Fatal(err)
	}
	return &watch{ca: c, held: files.sum()}
}

func TestBadChangeKeepsCAAndIsLoggedOnce(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	good := authority.IstioFiles()
	other := catest.NewCA(catest.Options{}).IstioFiles()
	dir := folderOf(t, good)
	log := newLogged()
	w := looking(t, dir, log)
	before := w.ca.current.Load()
	for _, bad := range []struct {
		name    string
		content []byte
		says    string
	}{
		{keyFile, other[keyFile], "ca-key.pem: not the key"},
		{keyFile, []byte("hello"), "ca-key.pem: there is no PEM block"},
		{rootFile, other[rootFile], "ca-cert.pem: does not chain"},
		{certFile, other[certFile], "ca-key.pem: not the key"},
	} {
		writeFiles(t, dir, map[string][]byte{bad.name: bad.content})
		for range 3 {
			w.look()
		}
		if text := log.next(t); !strings.Contains(text, bad.says) || !strings.Contains(text, "keeping") {
			t.Errorf("%s: logged %q", bad.says, text)
		}
		log.mustBeSilent(t)
		writeFiles(t, dir, good)
		w.look()
		log.mustBeSilent(t)
	}
	if err := os.Remove(filepath.Join(dir, certFile)); err != nil {
		t.Fatal(err)
	}
	w.look()
	w.look()
	if text := log.next(t); !strings.Contains(text, "no such file") {
		t.Errorf("logged %q", text)
	}
	log.mustBeSilent(t)
	if w.ca.current.Load() != before {
		t.Error("another CA is held")
	}
	req, check := web.request(t, "")
	if chain := sign(t, w.ca, req, check); !chain.Root.Equal(rootOf(t, authority)) {
		t.Error("the CA before does not sign")
	}
}

func TestSetIsTakenWholeOrNotAtAll(t *testing.T) {
	old, next := catest.NewCA(catest.Options{Intermediates: 1}), catest.NewCA(catest.Options{Intermediates: 1})
	dir := folderOf(t, old.IstioFiles())
	w := looking(t, dir, newLogged())
	for i, name := range []string{rootFile, certFile, chainFile, keyFile} {
		writeFiles(t, dir, map[string][]byte{name: next.IstioFiles()[name]})
		w.look()
		req, check := web.request(t, "")
		want := rootOf(t, old)
		if i == 3 {
			want = rootOf(t, next)
		}
		if chain := sign(t, w.ca, req, check); !chain.Root.Equal(want) {
			t.Errorf("with %d of 4 files written, another root signs", i+1)
		}
	}
}

func TestSeveralRootsAreReportedWithSigner(t *testing.T) {
	authority, other := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	authority.SetRoots(authority.Bundle().Union(other.Bundle()))
	c := mustOpen(t, Settings{Dir: folderOf(t, authority.IstioFiles())})
	got, err := c.Roots(t.Context())
	if err != nil || !bytes.Equal(got, authority.Bundle().PEM()) || authority.Bundle().Len() != 2 {
		t.Errorf("%v: %s", err, got)
	}
}

func TestWatchersGetOnlyRootChanges(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 1})
	dir := folderOf(t, authority.IstioFiles())
	c := mustOpen(t, settingsWithLog(dir, newLogged()))
	roots := testkit.WatchRoots(t, c)
	roots.Gets(t, patience, authority.Bundle().PEM())
	// The same CA without its chain file is another set with the same roots.
	before := c.current.Load()
	if err := os.Remove(filepath.Join(dir, chainFile)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-before.replaced:
	case <-time.After(patience):
		t.Fatal("the change was not noticed")
	}
	authority.Rotate()
	writeFiles(t, dir, authority.IstioFiles())
	roots.Gets(t, patience, authority.Bundle().PEM()) // and nothing in between
}

func TestWatchEndsWithContextCallerOrCA(t *testing.T) {
	c := mustOpen(t, Settings{Dir: folderOf(t, catest.NewCA(catest.Options{}).IstioFiles())})
	enough := errors.New("enough")
	if err := c.WatchRoots(t.Context(), func([]byte) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.WatchRoots(ctx, func([]byte) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	err := c.WatchRoots(t.Context(), func([]byte) error { return errors.Join(c.Close(), c.Close()) })
	if !errors.Is(err, ca.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestRequestsAreSignedWhileFolderChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	authority := catest.NewCA(catest.Options{})
	dir := folderOf(t, authority.IstioFiles())
	c := mustOpen(t, settingsWithLog(dir, newLogged()))
	roots := testkit.WatchRoots(t, c)
	roots.Gets(t, patience, authority.Bundle().PEM())
	req, check := web.request(t, "")
	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		failed <- signUntil(stop, c, req, check)
	}()
	for range 3 {
		authority.Rotate()
		writeFiles(t, dir, authority.IstioFiles())
		roots.Gets(t, patience, authority.Bundle().PEM())
	}
	close(stop)
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

// signUntil demands that each reply's chain leads to the roots of the same reply.
func signUntil(stop <-chan struct{}, c *CA, req ca.SignRequest, check pki.Check) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		reply, err := c.CSRSign(context.Background(), req)
		if err != nil {
			return err
		}
		if check.Roots, err = pki.ParseBundle(reply.Roots); err != nil {
			return err
		}
		if _, err = check.Chain(reply.Chain); err != nil {
			return err
		}
	}
}
