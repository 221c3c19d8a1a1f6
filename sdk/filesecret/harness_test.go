package filesecret_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

var agent secret.Caller

// files are what a folder gets, by name.
type files map[string][]byte

func (f files) writeTo(dir string) error {
	var errs []error
	for name, content := range f {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return errors.Join(errs...)
}

// issue returns a new pair of the authority, and its roots.
func issue(t *testing.T, authority *catest.CA) files {
	t.Helper()
	return issueFor(t, authority, time.Hour)
}

func issueFor(t *testing.T, authority *catest.CA, ttl time.Duration) files {
	t.Helper()
	chain, key := authority.Pair(ttl, "spiffe://example.org/web")
	return files{"cert-chain.pem": chain, "key.pem": key, "root-cert.pem": authority.Bundle().PEM()}
}

var must = fatal.If

// folder makes a folder with the files, reached by no link.
func folder(t *testing.T, f files) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err, f.writeTo(dir))
	return dir
}

func specs(dir string) []filesecret.Spec {
	return []filesecret.Spec{
		{Name: "default", Chain: filepath.Join(dir, "cert-chain.pem"), Key: filepath.Join(dir, "key.pem")},
		{Name: "ROOTCA", Roots: filepath.Join(dir, "root-cert.pem")},
	}
}

// reader is a source with what it has logged.
type reader struct {
	*filesecret.Source
	t   *testing.T
	log *logtest.Log
}

// serving makes a source; events alone must do where no poll is set.
func serving(t *testing.T, cfg filesecret.Config) *reader {
	t.Helper()
	if cfg.Poll == 0 {
		cfg.Poll = time.Hour
	}
	log := &logtest.Log{}
	cfg.Log = log.Logger()
	s, err := filesecret.New(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return &reader{s, t, log}
}

func serve(t *testing.T, dir string) *reader {
	t.Helper()
	return serving(t, filesecret.Config{Secrets: specs(dir), Debounce: 5 * time.Millisecond})
}

func (r *reader) held(name string) *secret.Item {
	r.t.Helper()
	item, err := r.Peek(agent, name)
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", name, err, r.log)
	}
	return item
}

func (r *reader) fails(name string, want error) {
	r.t.Helper()
	if _, err := r.Peek(agent, name); !errors.Is(err, want) {
		r.t.Errorf("%s: got %v, want %v", name, err, want)
	}
}

// await waits until good is true, looking again at each notice of the name.
func (r *reader) await(name, what string, good func(*secret.Item, error) bool) {
	r.t.Helper()
	changed := make(chan struct{}, 1)
	stop, err := r.Watch(agent, name, func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	must(r.t, err)
	defer stop()
	deadline := time.After(patience)
	for !good(r.Peek(agent, name)) {
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatalf("%s: %s was not seen\n%s", name, what, r.log)
		}
	}
}

// sees waits until both secrets are those of the files.
func (r *reader) sees(what string, f files) {
	r.t.Helper()
	r.await("default", what, func(item *secret.Item, err error) bool {
		return err == nil && bytes.Equal(item.Chain, f["cert-chain.pem"]) && bytes.Equal(item.Key, f["key.pem"])
	})
	r.await("ROOTCA", what, func(item *secret.Item, err error) bool {
		return err == nil && bytes.Equal(item.Roots, f["root-cert.pem"])
	})
}

// says waits for a line of the log.
func (r *reader) says(text string) {
	r.t.Helper()
	r.log.Await(r.t, patience, text, func(log string) bool { return strings.Contains(log, text) })
}

// link makes a symbolic link, in place of one that is there.
func link(target, path string) error {
	return errors.Join(os.Symlink(target, path+"_tmp"), os.Rename(path+"_tmp", path))
}
