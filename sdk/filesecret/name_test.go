package filesecret_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// open is a source of the names below the folders.
func open(t *testing.T, dirs ...string) *reader {
	t.Helper()
	return serving(t, filesecret.Config{Folders: dirs})
}

func certName(dir string) string {
	return "file-cert:" + at(dir, "cert-chain.pem") + "~" + at(dir, "key.pem")
}
func rootName(dir string) string { return "file-root:" + at(dir, "root-cert.pem") }

func TestFileNamesAreServedWhileWatched(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	f := issue(t, authority)
	dir := folder(t, f)
	s := open(t, dir)
	s.fails(certName(dir), secret.ErrNotReady) // without a watcher
	cert, err := secret.Get(t.Context(), s, agent, certName(dir))
	must(t, err)
	if cert.Name != certName(dir) || !bytes.Equal(cert.Chain, f["cert-chain.pem"]) {
		t.Errorf("got %v", cert)
	}
	root, err := secret.Get(t.Context(), s, agent, rootName(dir))
	must(t, err)
	if !bytes.Equal(root.Roots, f["root-cert.pem"]) {
		t.Errorf("got %v", root)
	}
	s.fails(certName(dir), secret.ErrNotReady) // without a watcher any more
	if len(s.Status()) != 0 {
		t.Errorf("a client's name is in the status: %v", s.Status())
	}
}

func TestChangedFilesOfNameAreNotified(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	dir := folder(t, issue(t, authority))
	s := open(t, dir)
	_, err := s.Watch(agent, certName(dir), func(string) {})
	must(t, err)
	for range 3 {
		next := issue(t, authority)
		must(t, next.writeTo(dir))
		s.await(certName(dir), "a change", func(item *secret.Item, err error) bool {
			return err == nil && bytes.Equal(item.Chain, next["cert-chain.pem"])
		})
	}
}

func TestNamesOutsideFoldersAreUnknown(t *testing.T) {
	f := issue(t, catest.NewCA(catest.Options{}))
	dir, outside := folder(t, f), folder(t, f)
	s := open(t, dir)
	for _, name := range []string{
		certName(outside), rootName(outside),
		certName(dir + "x"),
		"file-cert:" + at(dir, "cert-chain.pem") + "~" + at(outside, "key.pem"),
		"file-root:" + dir + "/../" + at(outside, "root-cert.pem"),
		"file-root:" + dir + "/..",
		"file-root:" + dir,
		"file-root:", "file-cert:", "file-cert:~", "file-cert:" + at(dir, "cert-chain.pem"),
		certName(dir) + "~x", "file-root:" + dir + "/a\nb", "file-root:" + dir + "/" + strings.Repeat("x", 5000),
		"default", "",
	} {
		s.fails(name, secret.ErrUnknown)
		if _, err := s.Watch(agent, name, func(string) {}); !errors.Is(err, secret.ErrUnknown) {
			t.Errorf("Watch %.100q: %v", name, err)
		}
	}
	s.says("file name refused")
	if n := strings.Count(s.log.String(), "refused"); n > 10 {
		t.Errorf("%d lines about what a client asked for", n)
	}
	none := open(t)
	none.fails(certName(dir), secret.ErrUnknown)
	none.fails("file-root:system", secret.ErrUnknown)
}

func TestLinkOutOfFoldersIsNotFollowed(t *testing.T) {
	f := issue(t, catest.NewCA(catest.Options{}))
	outside, dir := folder(t, f), folder(t, f)
	must(t, link(outside, at(dir, "folder")), link(at(outside, "root-cert.pem"), at(dir, "root")), link("../"+filepath.Base(outside), at(dir, "up")))
	s := open(t, dir)
	for _, name := range []string{certName(at(dir, "folder")), "file-root:" + at(dir, "root"), rootName(at(dir, "up"))} {
		if _, err := secret.Get(t.Context(), s, agent, name); !errors.Is(err, secret.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.says("lies outside the folders")
}

func TestNameIsForgottenWhenItsLinkLeavesFolder(t *testing.T) {
	f := issue(t, catest.NewCA(catest.Options{}))
	outside, dir := folder(t, issue(t, catest.NewCA(catest.Options{}))), folder(t, f)
	name := "file-root:" + at(dir, "link")
	must(t, link("root-cert.pem", at(dir, "link")))
	s := open(t, dir)
	_, err := s.Watch(agent, name, func(string) {})
	must(t, err)
	s.await(name, "the root", func(_ *secret.Item, err error) bool { return err == nil })
	must(t, link(at(outside, "root-cert.pem"), at(dir, "link")))
	s.await(name, "the refusal", func(_ *secret.Item, err error) bool { return errors.Is(err, secret.ErrUnknown) })
	must(t, link("root-cert.pem", at(dir, "link")))
	s.await(name, "the return", func(item *secret.Item, err error) bool {
		return err == nil && bytes.Equal(item.Roots, f["root-cert.pem"])
	})
}

func TestLinkIntoOtherAllowedFolderIsFollowed(t *testing.T) {
	f := issue(t, catest.NewCA(catest.Options{}))
	real, dir := folder(t, f), folder(t, nil)
	must(t, link(real, at(dir, "folder")))
	if _, err := secret.Get(t.Context(), open(t, dir, real), agent, certName(at(dir, "folder"))); err != nil {
		t.Error(err)
	}
	// An allowed folder may itself be a link, as the operator wrote it.
	if _, err := secret.Get(t.Context(), open(t, at(dir, "folder")), agent, certName(at(dir, "folder"))); err != nil {
		t.Error(err)
	}
}

func TestNumberOfNamesIsBounded(t *testing.T) {
	dir := folder(t, nil)
	s := serving(t, filesecret.Config{Folders: []string{dir}, MaxNames: 2})
	watch := func(n int) (func(), error) {
		return s.Watch(agent, fmt.Sprintf("file-root:%s/%d", dir, n), func(string) {})
	}
	stop, err := watch(0)
	must(t, err)
	_, err = watch(1)
	must(t, err)
	if _, err := watch(2); !errors.Is(err, secret.ErrUnknown) {
		t.Errorf("got %v", err)
	}
	if _, err := watch(1); err != nil {
		t.Errorf("a name that is there already: %v", err)
	}
	stop()
	stop()
	if _, err := watch(2); err != nil {
		t.Errorf("after one has gone: %v", err)
	}
}

func TestSystemRootsAreServed(t *testing.T) {
	one, two := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	dir := folder(t, files{"one.pem": one.Bundle().PEM(), "README": []byte("not a certificate")})
	file := at(folder(t, files{"two.pem": two.Bundle().PEM()}), "two.pem")
	s := serving(t, filesecret.Config{Folders: []string{dir}, SystemRoots: []string{dir, file, at(dir, "missing")}})
	item, err := secret.Get(t.Context(), s, agent, "file-root:system")
	must(t, err)
	if !bytes.Equal(item.Roots, one.Bundle().Union(two.Bundle()).PEM()) {
		t.Errorf("got %v", item)
	}
	_, err = s.Watch(agent, "file-root:system", func(string) {})
	must(t, err)
	must(t, os.WriteFile(file, one.Bundle().PEM(), 0o600))
	s.await("file-root:system", "the change", func(item *secret.Item, err error) bool {
		return err == nil && bytes.Equal(item.Roots, one.Bundle().PEM())
	})
}

// asking is a log handler that asks the source for its state.
type asking struct {
	slog.Handler
	source atomic.Pointer[filesecret.Source]
	asked  chan struct{}
}

func (*asking) Enabled(context.Context, slog.Level) bool { return true }

func (a *asking) Handle(context.Context, slog.Record) error {
	if s := a.source.Load(); s != nil {
		s.Status()
		close(a.asked)
	}
	return nil
}

func TestLogHandlerCanCallSource(t *testing.T) {
	handler := &asking{Handler: slog.DiscardHandler, asked: make(chan struct{})}
	s, err := filesecret.New(filesecret.Config{Folders: []string{t.TempDir()}, Poll: time.Hour, Log: slog.New(handler)})
	must(t, err)
	handler.source.Store(s)
	go func() { _, _ = s.Watch(agent, "file-root:/elsewhere", func(string) {}) }()
	select {
	case <-handler.asked:
		must(t, s.Close())
	case <-time.After(patience):
		t.Fatal("the source waits for its own log line")
	}
}
