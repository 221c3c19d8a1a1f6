package output_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"go.uber.org/goleak"
	"software.sslmate.com/src/go-pkcs12"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/filesecret/output"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// asProgram in the environment makes the test binary a program that waits for a
// signal and tells of it.
const asProgram = "OUTPUT_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		waitForHangup()
		return
	}
	goleak.VerifyTestMain(m)
}

const patience = 10 * time.Second

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// rotating is a manager whose certificate is replaced when the test says so.
type rotating struct {
	*secret.Manager
	t *testing.T
}

func newRotating(t *testing.T) *rotating {
	t.Helper()
	id, err := pki.NewIdentity("spiffe://example.org/web", nil, nil)
	must(t, err)
	m, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: catest.NewCA(catest.Options{Intermediates: 1})}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, TTL: time.Hour, Authorities: []string{"test"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
		},
	})
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return &rotating{m, t}
}

func (r *rotating) held(name string) *secret.Item {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	item, err := r.Get(ctx, secret.Caller{}, name)
	must(r.t, err)
	return item
}

func (r *rotating) rotate() { must(r.t, r.Release(secret.Caller{}, "default")) }

// running is an output with what it has told.
type running struct {
	t      *testing.T
	events chan output.EventType
	log    *syncText
}

type syncText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *syncText) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

func (s *syncText) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func start(t *testing.T, cfg output.Config, source secret.Source) *running {
	t.Helper()
	r := &running{t, make(chan output.EventType, 100), &syncText{}}
	cfg.Name, cfg.Pair, cfg.Bundle = "test", "default", "ROOTCA"
	if cfg.Files == nil {
		cfg.Files = output.IstioFiles()
	}
	cfg.Observe = func(e output.Event) { r.events <- e.Type }
	cfg.Log = slog.New(slog.NewTextHandler(r.log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- output.Run(ctx, cfg, source) }()
	t.Cleanup(func() { cancel(); must(t, <-ended) })
	return r
}

func (r *running) await(want output.EventType) {
	r.t.Helper()
	for {
		select {
		case got := <-r.events:
			if got == want {
				return
			}
		case <-time.After(patience):
			r.t.Fatalf("%s did not happen:\n%s", want, r.log)
		}
	}
}

func read(t *testing.T, elements ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(elements...))
	must(t, err)
	return content
}

func TestTheFilesFollowEveryRotation(t *testing.T) {
	source, dir := newRotating(t), filepath.Join(t.TempDir(), "made", "here")
	r := start(t, output.Config{Folder: dir}, source)
	for range 5 {
		r.await(output.Written)
		item := source.held("default")
		if !bytes.Equal(read(t, dir, "cert-chain.pem"), item.Chain) || !bytes.Equal(read(t, dir, "key.pem"), item.Key) ||
			!bytes.Equal(read(t, dir, "root-cert.pem"), source.held("ROOTCA").Roots) {
			t.Fatal("the files are not what is held")
		}
		source.rotate()
	}
	for name, mode := range map[string]fs.FileMode{"key.pem": 0o600, "cert-chain.pem": 0o644, "root-cert.pem": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if info.Mode() != mode {
			t.Errorf("%s has mode %s", name, info.Mode())
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 3 {
		t.Errorf("other files were left: %v", entries)
	}
	if strings.Contains(r.log.String(), strings.Split(string(source.held("default").Key), "\n")[1]) {
		t.Error("the key was logged")
	}
}

func TestAReaderSeesAWholeSetBehindALinkAndInACombinedFile(t *testing.T) {
	source, dir := newRotating(t), t.TempDir()
	r := start(t, output.Config{Folder: dir, Link: "current", Files: []output.File{
		{Name: "key.pem", Content: output.Key}, {Name: "chain.pem", Content: output.Chain}, {Name: "both.pem", Content: output.Combined},
	}}, source)
	r.await(output.Written)
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- loadUntil(stop, dir) }()
	for range 20 {
		source.rotate()
		r.await(output.Written)
	}
	close(stop)
	must(t, <-ended)
	if entries, _ := os.ReadDir(dir); len(entries) > 3 {
		t.Errorf("old sets were left: %v", entries)
	}
}

// loadUntil demands that key and chain fit whenever they are read: through one
// look at the link, or from one file.
func loadUntil(stop <-chan struct{}, dir string) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		set, err := filepath.EvalSymlinks(filepath.Join(dir, "current"))
		if err != nil {
			return err
		}
		if _, err := tls.LoadX509KeyPair(filepath.Join(set, "chain.pem"), filepath.Join(set, "key.pem")); err != nil {
			return err
		}
		both := filepath.Join(dir, "current", "both.pem")
		if _, err := tls.LoadX509KeyPair(both, both); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

func TestInTheFlatLayoutTheKeyIsWrittenLast(t *testing.T) {
	source, dir := newRotating(t), t.TempDir()
	order := make(chan string, 1)
	r := start(t, output.Config{Folder: dir, Reload: func(context.Context, *slog.Logger) error {
		var names []string
		times := map[string]time.Time{}
		for _, name := range []string{"root-cert.pem", "cert-chain.pem", "key.pem"} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			times[name] = changed(info)
			names = append(names, name)
		}
		for i := 1; i < len(names); i++ {
			if times[names[i]].Before(times[names[i-1]]) {
				order <- names[i]
				return nil
			}
		}
		order <- ""
		return nil
	}}, source)
	r.await(output.Reloaded)
	if early := <-order; early != "" {
		t.Errorf("%s was renamed too early", early)
	}
}

// changed is when the file got its name.
func changed(info fs.FileInfo) time.Time {
	stat := info.Sys().(*syscall.Stat_t)
	return time.Unix(stat.Ctim.Sec, stat.Ctim.Nsec)
}

func TestStoresHoldWhatIsHeld(t *testing.T) {
	source, dir := newRotating(t), t.TempDir()
	r := start(t, output.Config{Folder: dir, Password: func() (string, error) { return "open sesame", nil }, Files: []output.File{
		{Name: "key.p12", Content: output.PKCS12}, {Name: "roots.p12", Content: output.PKCS12Roots}, {Name: "roots.jks", Content: output.JKSRoots},
	}}, source)
	r.await(output.Written)
	item := source.held("default")
	key, leaf, above, err := pkcs12.DecodeChain(read(t, dir, "key.p12"), "open sesame")
	must(t, err)
	if !pki.SameKey(key.(crypto.Signer).Public(), leaf.PublicKey) || pki.Fingerprint(leaf) != item.Fingerprint || len(above) != 1 {
		t.Errorf("the keystore holds %s and %d more", leaf.Subject, len(above))
	}
	roots, err := pkcs12.DecodeTrustStore(read(t, dir, "roots.p12"), "open sesame")
	must(t, err)
	if !bytes.Equal(pki.EncodeCertificates(roots), source.held("ROOTCA").Roots) {
		t.Error("the truststore holds other roots")
	}
	store := keystore.New()
	must(t, store.Load(bytes.NewReader(read(t, dir, "roots.jks")), []byte("open sesame")))
	entry, err := store.GetTrustedCertificateEntry(store.Aliases()[0])
	must(t, err)
	if _, err := x509.ParseCertificate(entry.Certificate.Content); err != nil || len(store.Aliases()) != 1 {
		t.Errorf("%v, %v", store.Aliases(), err)
	}
	if info, err := os.Stat(filepath.Join(dir, "key.p12")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the keystore has mode %v", info.Mode())
	}
}

func TestWrongOutputsAreRefused(t *testing.T) {
	good := output.Config{Name: "n", Pair: "default", Bundle: "ROOTCA", Folder: "x", Files: output.IstioFiles()}
	for says, change := range map[string]func(*output.Config){
		"name a folder":      func(c *output.Config) { c.Folder = "" },
		"at least one file":  func(c *output.Config) { c.Files = nil },
		"without a folder":   func(c *output.Config) { c.Files = []output.File{{Name: "../key", Content: output.Key}} },
		"no leading '.'":     func(c *output.Config) { c.Files = []output.File{{Name: ".key", Content: output.Key}} },
		"is there twice":     func(c *output.Config) { c.Files = append(c.Files, c.Files[0]) },
		`is to hold "keys"`:  func(c *output.Config) { c.Files = []output.File{{Name: "key", Content: "keys"}} },
		"no secret is named": func(c *output.Config) { c.Bundle = "" },
		"permissions alone": func(c *output.Config) {
			c.Files = []output.File{{Name: "key", Content: output.Key, Mode: fs.ModeSetuid}}
		},
		"the link is \"a/b\"":      func(c *output.Config) { c.Link = "a/b" },
		`secret "nobody": unknown`: func(c *output.Config) { c.Pair = "nobody" },
	} {
		cfg := good
		change(&cfg)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := output.Run(ctx, cfg, newRotating(t)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
		}
		cancel()
	}
}

func TestABurstOfChangesIsOneReload(t *testing.T) {
	source, reloads := newRotating(t), make(chan time.Time, 100)
	const pause = 500 * time.Millisecond
	r := start(t, output.Config{Folder: t.TempDir(), Pause: pause, Reload: func(context.Context, *slog.Logger) error {
		reloads <- time.Now()
		return nil
	}}, source)
	r.await(output.Reloaded)
	for range 10 {
		source.rotate()
		r.await(output.Written)
	}
	r.await(output.Reloaded)
	first, second := <-reloads, <-reloads
	if d := second.Sub(first); d < pause {
		t.Errorf("two reloads within %s", d)
	}
	if len(reloads) > 1 {
		t.Errorf("%d reloads more", len(reloads))
	}
}

func waitForHangup() {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	_, _ = os.Stdout.WriteString("ready\n")
	select {
	case <-hangups:
		_, _ = os.Stdout.WriteString("hangup\n")
	case <-time.After(time.Minute):
	}
}

func TestAProcessIsSignalledOnlyIfItIsTheOneThatWasMeant(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	line := make([]byte, len("ready\n"))
	_, err = out.Read(line)
	must(t, err)
	pidFile := filepath.Join(t.TempDir(), "pid")
	must(t, os.WriteFile(pidFile, []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600))
	good := output.Process{PIDFile: pidFile, Executable: self, UID: os.Getuid()}
	log := slog.New(slog.DiscardHandler)
	for says, p := range map[string]output.Process{
		"does not run /bin/sh":  {PIDFile: pidFile, Executable: "/bin/sh", UID: good.UID},
		"it is to be user 4711": {PIDFile: pidFile, Executable: self, UID: 4711},
		"no such file":          {PIDFile: pidFile + "x", Executable: self, UID: good.UID},
	} {
		if err := output.Signal(p, syscall.SIGHUP)(t.Context(), log); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
		}
	}
	must(t, os.Chmod(pidFile, 0o666))
	if err := output.Signal(good, syscall.SIGHUP)(t.Context(), log); err == nil || !strings.Contains(err.Error(), "can be written by others") {
		t.Errorf("got %v", err)
	}
	must(t, os.Chmod(pidFile, 0o600), output.Signal(good, syscall.SIGHUP)(t.Context(), log))
	line = make([]byte, len("hangup\n"))
	if _, err := out.Read(line); err != nil || string(line) != "hangup\n" {
		t.Errorf("the process tells %q, %v", line, err)
	}
	must(t, cmd.Wait())
	if err := output.Signal(good, syscall.SIGHUP)(t.Context(), log); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("got %v", err)
	}
}

func TestACommandRunsWithoutShellAndSecretsAndEndsInTime(t *testing.T) {
	t.Setenv("SOME_TOKEN", "a-secret")
	text := &syncText{}
	log := slog.New(slog.NewTextHandler(text, nil))
	must(t, output.Command([]string{"/usr/bin/env"}, patience)(t.Context(), log))
	if got := text.String(); strings.Contains(got, "a-secret") || !strings.Contains(got, "PATH=") {
		t.Errorf("logged %s", got)
	}
	if err := output.Command([]string{"/bin/false"}, patience)(t.Context(), log); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("got %v", err)
	}
	if err := output.Command([]string{"/bin/echo $HOME"}, patience)(t.Context(), log); err == nil {
		t.Error("a shell was used")
	}
	begin := time.Now()
	err := output.Command([]string{"/bin/sh", "-c", "sleep 60 & sleep 60"}, 200*time.Millisecond)(t.Context(), log)
	if err == nil || !strings.Contains(err.Error(), "took longer than") || time.Since(begin) > 5*time.Second {
		t.Errorf("got %v after %s", err, time.Since(begin))
	}
	must(t, output.Command([]string{"/usr/bin/printf", `\033[31mred\n%05000d`, "0"}, patience)(t.Context(), log))
	if got := text.String(); !strings.Contains(got, `x1b[31mred`) || len(got) > 10000 {
		t.Errorf("logged %d bytes: %.300s", len(got), got)
	}
}
