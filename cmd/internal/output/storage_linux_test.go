package output_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// program is an agent without a state folder that runs, writes its outputs and ends.
type program struct {
	t       *testing.T
	ca      *catest.CA
	spec    secret.Spec
	name    string // of the authority
	outputs []output.Config
	now     func() time.Time
	log     logtest.Log
}

func newProgram(t *testing.T, outputs ...output.Config) *program {
	t.Helper()
	id, err := pki.NewIdentity("spiffe://example.org/web", []string{"web.example.org"}, nil)
	must(t, err)
	for i := range outputs {
		outputs[i].Name, outputs[i].Pair = "test", "default"
		if outputs[i].SPIFFE {
			outputs[i].Bundle = "ROOTCA"
		}
	}
	return &program{
		t: t, ca: catest.NewCA(catest.Options{Intermediates: 1}), name: "test", outputs: outputs,
		spec: secret.Spec{Name: "default", Kind: secret.KeyPair, Identity: id, TTL: time.Hour},
	}
}

// onlySigns hides that a CA publishes its roots: as with many, they come with certificates alone.
type onlySigns struct{ ca.Client }

// start returns the agent's secrets.
func (p *program) start() *secret.Manager {
	p.t.Helper()
	p.spec.Authorities = []string{p.name}
	m, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: p.name, Client: onlySigns{p.ca}}},
		Secrets:     []secret.Spec{p.spec, {Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: p.spec.Authorities}},
		Storage:     output.NewStorage(p.outputs, func(string) []string { return p.spec.Authorities }),
		Now:         p.now, Log: p.log.Logger(),
	})
	must(p.t, err)
	return m
}

// run returns how many certificates were ordered.
func (p *program) run() int {
	p.t.Helper()
	before := len(p.ca.Requests())
	m := p.start()
	defer func() { must(p.t, m.Close()) }()
	for _, cfg := range p.outputs {
		ctx, cancel := context.WithTimeout(p.t.Context(), patience)
		cfg.Log = p.log.Logger()
		cfg.Observe = func(e output.Event) {
			if e.Type == output.Written {
				cancel()
			}
		}
		must(p.t, output.Run(ctx, cfg, m))
		if ctx.Err() != context.Canceled {
			p.t.Fatalf("nothing was written:\n%s", &p.log)
		}
	}
	return len(p.ca.Requests()) - before
}

// forms are the outputs that have a key.
func forms(dir string) map[string]output.Config {
	return map[string]output.Config{
		"separate files": {Folder: dir, Files: []output.File{{Name: "c.pem", Content: output.Chain}, {Name: "key.pem", Content: output.Key}}},
		"behind a link":  {Folder: dir, Link: "current", Files: []output.File{{Name: "c.pem", Content: output.Chain}, {Name: "key.pem", Content: output.Key}}},
		"one file":       {Folder: dir, Files: []output.File{{Name: "key.pem", Content: output.Combined, Mode: 0o640}}},
		"keystore":       {Folder: dir, Files: []output.File{{Name: "key.p12", Content: output.PKCS12}}, Password: func() (string, error) { return "secret", nil }},
		"SPIFFE folder":  {Folder: dir, SPIFFE: true},
	}
}

func TestNextRunReadsBackWhatItWrote(t *testing.T) {
	for name := range forms("") {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := newProgram(t, forms(dir)[name])
			if n := p.run(); n != 1 {
				t.Fatalf("the first run ordered %d certificates", n)
			}
			for range 2 {
				if n := p.run(); n != 0 {
					t.Errorf("a later run ordered %d certificates:\n%s", n, &p.log)
				}
			}
			found, err := filepath.Glob(filepath.Join(dir, ".*"))
			must(t, err)
			for _, file := range found {
				if !strings.HasPrefix(filepath.Base(file), ".record-") {
					continue
				}
				info, err := os.Stat(file)
				must(t, err)
				if info.Mode() != 0o600 || bytes.Contains(read(t, file), []byte("PRIVATE")) {
					t.Errorf("%s has mode %s, or a key", file, info.Mode())
				}
			}
		})
	}
}

func TestOnlyAPairThatPassesIsReadBack(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, p *program, dir string)
		says  string
	}{
		"key type changed": {func(_ *testing.T, p *program, _ string) { p.spec.KeyType = pki.RSA2048 }, "its key is of type"},
		"names changed":    {func(_ *testing.T, p *program, _ string) { p.spec.Identity.DNSNames = []string{"b.example.org"} }, "is configured"},
		"another authority": {func(_ *testing.T, p *program, _ string) {
			p.name, p.ca = "other", catest.NewCA(catest.Options{})
		}, "which does not sign this secret"},
		"key replaced": {func(t *testing.T, _ *program, dir string) {
			_, key := catest.NewCA(catest.Options{}).Pair(time.Hour, "spiffe://example.org/web")
			must(t, os.WriteFile(filepath.Join(dir, "key.pem"), key, 0o600))
		}, "not that of the certificate"},
		"half a key": {func(t *testing.T, _ *program, dir string) {
			must(t, os.Truncate(filepath.Join(dir, "key.pem"), 60))
		}, "key.pem"},
		"key open to writers": {func(t *testing.T, _ *program, dir string) {
			must(t, os.Chmod(filepath.Join(dir, "key.pem"), 0o620))
		}, "chmod go-w"},
		"record open to readers": {func(t *testing.T, _ *program, dir string) {
			must(t, os.Chmod(filepath.Join(dir, ".record-key.pem"), 0o640))
		}, "chmod go-rwx"},
		"half a record": {func(t *testing.T, _ *program, dir string) {
			must(t, os.Truncate(filepath.Join(dir, ".record-key.pem"), 60))
		}, "not understood"},
		"record is a pipe": {func(t *testing.T, _ *program, dir string) {
			must(t, os.Remove(filepath.Join(dir, ".record-key.pem")), syscall.Mkfifo(filepath.Join(dir, ".record-key.pem"), 0o600))
		}, "not a regular file"},
		"key is a link": {func(t *testing.T, _ *program, dir string) {
			must(t, os.Rename(filepath.Join(dir, "key.pem"), filepath.Join(dir, "real")), os.Symlink("real", filepath.Join(dir, "key.pem")))
		}, "not a regular file"},
		"key is gone":    {func(t *testing.T, _ *program, dir string) { must(t, os.Remove(filepath.Join(dir, "key.pem"))) }, ""},
		"record is gone": {func(t *testing.T, _ *program, dir string) { must(t, os.Remove(filepath.Join(dir, ".record-key.pem"))) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := newProgram(t, forms(dir)["separate files"])
			p.run()
			c.spoil(t, p, dir)
			if n := p.run(); n == 0 || !strings.Contains(p.log.String(), c.says) {
				t.Errorf("the next run ordered %d certificates:\n%s", n, &p.log)
			}
			if n := p.run(); n != 0 {
				t.Errorf("the run after it ordered %d certificates:\n%s", n, &p.log)
			}
		})
	}
}

func TestPairIsNotReadBackAtAnotherTime(t *testing.T) {
	for off, says := range map[time.Duration]string{2 * time.Hour: "expired", -2 * time.Hour: "not-before"} {
		p := newProgram(t, forms(t.TempDir())["separate files"])
		p.run()
		p.now = func() time.Time { return time.Now().Add(off) }
		m := p.start()
		for deadline := time.Now().Add(patience); !strings.Contains(p.log.String(), says); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s off:\n%s", off, &p.log)
			}
		}
		must(t, m.Close())
	}
}

// A keystore of another user could take any time to open.
func TestKeyOfItsConfiguredOwnerIsReadBackAsPEM(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file away")
	}
	uid := nobody
	for name, want := range map[string]int{"separate files": 0, "one file": 0, "keystore": 1} {
		cfg := forms(t.TempDir())[name]
		cfg.UID = &uid
		p := newProgram(t, cfg)
		p.run()
		if n := p.run(); n != want {
			t.Errorf("%s: ordered %d certificates:\n%s", name, n, &p.log)
		}
		p.outputs[0].UID = nil
		must(t, os.Chown(filepath.Join(cfg.Folder, keyFile(cfg)), uid+1, -1))
		if n := p.run(); n != 1 || !strings.Contains(p.log.String(), "belongs to uid") {
			t.Errorf("%s of another user: ordered %d certificates:\n%s", name, n, &p.log)
		}
	}
}

func keyFile(cfg output.Config) string { return cfg.Files[len(cfg.Files)-1].Name }

func TestAnyOutputOfTheSecretIsReadBack(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	p := newProgram(t, forms(a)["separate files"], forms(b)["keystore"], output.Config{Folder: t.TempDir(), Files: []output.File{{Name: "c.pem", Content: output.Chain}}})
	p.run()
	must(t, os.RemoveAll(a), os.WriteFile(filepath.Join(b, ".new-.record-key.p12"), []byte("of a run that was killed"), 0o600))
	if n := p.run(); n != 0 {
		t.Errorf("ordered %d certificates:\n%s", n, &p.log)
	}
}

// A folder that was away at the last renewal has the pair before.
func TestNewestPairOfSeveralOutputsIsReadBack(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	p := newProgram(t, forms(a)["separate files"], forms(b)["separate files"])
	p.run()
	old := map[string][]byte{}
	for _, name := range []string{".record-key.pem", "key.pem", "c.pem"} {
		old[name] = read(t, filepath.Join(a, name))
	}
	must(t, os.Remove(filepath.Join(a, ".record-key.pem")), os.Remove(filepath.Join(b, ".record-key.pem")))
	if n := p.run(); n != 1 {
		t.Fatalf("ordered %d certificates without a record", n)
	}
	newest := read(t, filepath.Join(b, "c.pem"))
	for name, content := range old {
		must(t, os.WriteFile(filepath.Join(a, name), content, 0o600))
	}
	if n := p.run(); n != 0 {
		t.Errorf("ordered %d certificates:\n%s", n, &p.log)
	}
	for _, dir := range []string{a, b} {
		if !bytes.Equal(read(t, filepath.Join(dir, "c.pem")), newest) {
			t.Errorf("%s does not have the newest certificate", dir)
		}
	}
}

func TestKeyThatCannotBeReadBackIsNone(t *testing.T) {
	other := os.Geteuid() + 1
	for name, cfg := range forms(t.TempDir()) {
		if !cfg.HasKey() {
			t.Errorf("%s: its key is not read back", name)
		}
		cfg.UID = &other
		if want := os.Geteuid() == 0 && name != "keystore" || name == "one file"; cfg.HasKey() != want {
			t.Errorf("%s of another user: %t", name, !want)
		}
	}
	cfg := output.Config{Files: []output.File{{Name: "key.pem", Content: output.Key, Mode: 0o660}}}
	if cfg.HasKey() {
		t.Error("a key that others may write is read back")
	}
}

// A reload may have another authority sign the pair, whose roots the next run needs to verify it.
func TestRootsOfAnAuthorityThatAReloadAddsAreStored(t *testing.T) {
	cfg := forms(t.TempDir())["separate files"]
	cfg.Name, cfg.Pair = "test", "default"
	want := secret.Record{Authority: "new", Content: []byte("roots")}
	for _, authority := range []string{"old", "new"} {
		s := output.NewStorage([]output.Config{cfg}, func(string) []string { return []string{authority} })
		if authority == "old" {
			must(t, s.Store(t.Context(), secret.RecordOfRoots("new"), want))
		}
		got, err := s.Load(t.Context(), secret.RecordOfRoots("new"))
		must(t, err)
		if got.Authority != want.Authority || !bytes.Equal(got.Content, want.Content) {
			t.Errorf("with the authority %q: %s", authority, got)
		}
	}
}
