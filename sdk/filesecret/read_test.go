package filesecret_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func join(parts ...[]byte) []byte { return bytes.Join(parts, []byte("\n")) }

func TestPairIsServedWithLeafDetails(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 1})
	f := issue(t, authority)
	s := serve(t, folder(t, f))
	item := s.held("default")
	certs, err := pki.ParseCertificates(f["cert-chain.pem"])
	must(t, err)
	if item.Fingerprint != pki.Fingerprint(certs[0]) || item.Identity.String() != "spiffe://example.org/web" || !item.NotAfter.Equal(certs[0].NotAfter) {
		t.Errorf("got %v", item)
	}
	root := authority.Bundle().Fingerprints()[0]
	if item.RootFingerprint != root || s.held("ROOTCA").RootFingerprints[0] != root {
		t.Errorf("the root that the chain leads to is %q, want %q", item.RootFingerprint, root)
	}
	for _, status := range s.Status() {
		if !status.Held || status.Rotations != 1 || status.Failure != nil {
			t.Errorf("status %+v", status)
		}
	}
}

func TestRootAtEndOfChainIsLeftOut(t *testing.T) {
	f := issue(t, catest.NewCA(catest.Options{Intermediates: 1}))
	chain := f["cert-chain.pem"]
	f["cert-chain.pem"] = join(chain, f["root-cert.pem"])
	if got := serve(t, folder(t, f)).held("default").Chain; !bytes.Equal(got, chain) {
		t.Errorf("got %s", got)
	}
}

func TestBadPairKeepsLastGoodOne(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	good, other := issue(t, authority), issue(t, authority)
	big := bytes.Repeat([]byte("x"), 1<<20+1)
	for says, bad := range map[string]files{
		"is not the key of the first":     {"key.pem": other["key.pem"]},
		"there is no PEM block in it":     {"key.pem": []byte("hello")},
		"holds no PEM block":              {"cert-chain.pem": nil},
		"has more than 1048576 bytes":     {"cert-chain.pem": big},
		"ended at":                        issueFor(t, catest.NewCA(catest.Options{Now: longAgo}), time.Hour),
		"begins at":                       issueFor(t, catest.NewCA(catest.Options{Now: farAhead}), time.Hour),
		"certificates, 10 are allowed in": {"cert-chain.pem": bytes.Repeat(good["cert-chain.pem"], 11)},
	} {
		delete(bad, "root-cert.pem")
		dir := folder(t, good)
		s := serve(t, dir)
		before := s.held("default")
		must(t, bad.writeTo(dir))
		s.says(says)
		if s.held("default") != before {
			t.Errorf("%s: another pair is served", says)
		}
		if f := s.Status()[1].Failure; f == nil || !strings.Contains(f.Text, says) {
			t.Errorf("%s: the status has %+v", says, f)
		}
		empty := folder(t, bad)
		never := serve(t, empty)
		never.fails("default", secret.ErrNotReady)
		if _, err := never.Peek(agent, "default"); !strings.Contains(err.Error(), "; the last attempt: ") {
			t.Errorf("%s: the error is %v", says, err)
		}
		must(t, other.writeTo(dir))
		s.sees("a good pair", other)
		if f := s.Status()[1].Failure; f != nil {
			t.Errorf("%s: after a good pair the status has %+v", says, f)
		}
	}
}

func longAgo() time.Time  { return time.Now().Add(-24 * time.Hour) }
func farAhead() time.Time { return time.Now().Add(24 * time.Hour) }

func TestInitiallyEmptyFileIsShownInStatus(t *testing.T) {
	good := issue(t, catest.NewCA(catest.Options{}))
	for file, name := range map[string]string{"cert-chain.pem": "default", "key.pem": "default", "root-cert.pem": "ROOTCA"} {
		dir := folder(t, good)
		must(t, files{file: nil}.writeTo(dir))
		s := serve(t, dir)
		s.fails(name, secret.ErrNotReady)
		for _, status := range s.Status() {
			if f := status.Failure; status.Name == name && (f == nil || !strings.Contains(f.Text, at(dir, file))) {
				t.Errorf("%s: the status has %+v", file, f)
			}
		}
	}
}

func TestBadFilesAreReadAgainWithoutEvent(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	authority := catest.NewCA(catest.Options{})
	good, other := issue(t, authority), issue(t, authority)
	dir := folder(t, files{"cert-chain.pem": good["cert-chain.pem"], "key.pem": other["key.pem"], "root-cert.pem": good["root-cert.pem"]})
	s := serving(t, filesecret.Config{Secrets: specs(dir), NoEvents: true}) // and the poll is far away
	must(t, good.writeTo(dir))
	s.sees("the key", good)
}

func TestNamedPipeDoesNotBlock(t *testing.T) {
	f := issue(t, catest.NewCA(catest.Options{}))
	dir := folder(t, files{"cert-chain.pem": f["cert-chain.pem"], "root-cert.pem": f["root-cert.pem"]})
	must(t, syscall.Mkfifo(at(dir, "key.pem"), 0o600))
	s := serve(t, dir)
	s.says("is not a regular file")
	s.held("ROOTCA")
}

func TestBadBundleCertificatesAreLeftOutAndNamed(t *testing.T) {
	good, gone := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{Now: longAgo, CALifetime: 2 * time.Hour})
	pair := issue(t, good)
	malformed := []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	cut := []byte("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n")
	dir := folder(t, files{"root-cert.pem": join(malformed, pair["cert-chain.pem"], gone.Bundle().PEM(), cut, good.Bundle().PEM(), []byte("a comment"))})
	s := serve(t, dir)
	if got := s.held("ROOTCA").Roots; !bytes.Equal(got, good.Bundle().PEM()) {
		t.Errorf("got %s", got)
	}
	for _, reason := range []string{"PEM block 1 is malformed", "is not a CA certificate", "ended at", `PEM block 4 \"CERTIFICATE\" at line `} {
		s.says(reason)
	}
	if n := strings.Count(s.log.String(), "omitted from the bundle"); n != 4 {
		t.Errorf("%d were named", n)
	}
}

// pem.Decode skips a last block that it cannot read.
func TestMalformedLastRootIsNamed(t *testing.T) {
	good := catest.NewCA(catest.Options{}).Bundle().PEM()
	for name, last := range map[string]string{
		"cut off":   "-----BEGIN CERTIFICATE-----\nAAAA\n",
		"no base64": "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, folder(t, files{"root-cert.pem": join(good, []byte(last))}))
			if got := s.held("ROOTCA").Roots; !bytes.Equal(got, good) {
				t.Errorf("got %s", got)
			}
			s.says(`PEM block 2 \"CERTIFICATE\" at line `)
		})
	}
}

func TestBundleWithoutGoodCertificateKeepsOldOne(t *testing.T) {
	f := issue(t, catest.NewCA(catest.Options{}))
	dir := folder(t, f)
	s := serve(t, dir)
	before := s.held("ROOTCA")
	must(t, files{"root-cert.pem": f["cert-chain.pem"]}.writeTo(dir))
	s.says("it holds no CA certificate that is valid now")
	if s.held("ROOTCA") != before {
		t.Error("another bundle is served")
	}
}

func TestPairIsServedUntilItExpires(t *testing.T) {
	f := issue(t, catest.NewCA(catest.Options{}))
	dir := folder(t, f)
	clock := make(chan time.Time, 1)
	clock <- time.Now()
	now := func() time.Time { t := <-clock; clock <- t; return t }
	expired := make(chan secret.Event, 10)
	s := serving(t, filesecret.Config{Secrets: specs(dir)[:1], NoEvents: true, Poll: 10 * time.Millisecond, Now: now, Observe: func(e secret.Event) {
		if e.Kind == secret.Expired {
			expired <- e
		}
	}})
	item := s.held("default")
	<-clock
	clock <- item.NotAfter.Add(time.Second)
	s.fails("default", secret.ErrNotReady)
	select {
	case e := <-expired:
		if e.Secret != "default" {
			t.Errorf("got %+v", e)
		}
	case <-time.After(patience):
		t.Fatal("no notice was sent")
	}
	s.says("expired and was not replaced")
	if since := s.Status()[0].ExpiredSince; !since.Equal(item.NotAfter) {
		t.Errorf("expired since %s", since)
	}
}

// The alert on failures counts them.
func TestEachFailureIsReportedAndLoggedOnce(t *testing.T) {
	dir := folder(t, issue(t, catest.NewCA(catest.Options{})))
	failed := make(chan secret.Event, 1000)
	s := serving(t, filesecret.Config{Secrets: specs(dir)[:1], NoEvents: true, Poll: 10 * time.Millisecond, Observe: func(e secret.Event) {
		if e.Kind == secret.Failed {
			failed <- e
		}
	}})
	must(t, files{"cert-chain.pem": []byte("half")}.writeTo(dir))
	for range 3 {
		select {
		case e := <-failed:
			if e.Secret != "default" || e.Failure == nil || e.Failure.Text == "" || e.Failure.At.IsZero() {
				t.Errorf("got %+v", e)
			}
		case <-time.After(patience):
			t.Fatal("it was not reported again")
		}
	}
	if n := strings.Count(s.log.String(), "secret files are invalid"); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
}

func TestNoKeyIsLogged(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	f := issue(t, authority)
	dir := folder(t, f)
	s := serve(t, dir)
	// A key where a certificate is expected, and the other way round.
	must(t, files{"cert-chain.pem": f["key.pem"], "key.pem": f["cert-chain.pem"], "root-cert.pem": f["key.pem"]}.writeTo(dir))
	s.says("cert-chain.pem")
	s.says("root-cert.pem")
	if line := strings.Split(string(f["key.pem"]), "\n")[1]; strings.Contains(s.log.String(), line) {
		t.Error("a key was logged")
	}
}

func TestWrongConfigurationsAreRefused(t *testing.T) {
	for says, cfg := range map[string]filesecret.Config{
		"named \"\"":                      {Secrets: []filesecret.Spec{{Roots: "r"}}},
		"begins neither with":             {Secrets: []filesecret.Spec{{Name: "file-root:x", Roots: "r"}}},
		"name the files of its chain":     {Secrets: []filesecret.Spec{{Name: "a", Chain: "c"}}},
		"its key, or the file":            {Secrets: []filesecret.Spec{{Name: "a", Chain: "c", Key: "k", Roots: "r"}}},
		"is there twice":                  {Secrets: []filesecret.Spec{{Name: "a", Roots: "r"}, {Name: "a", Roots: "r"}}},
		"it would allow every file":       {Folders: []string{"/"}},
		`folder "": it would allow every`: {Folders: []string{""}},
	} {
		if s, err := filesecret.New(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
			if err == nil {
				must(t, s.Close())
			}
		}
	}
}

func TestClosedSourceNotifiesWatchersAndStopsAnswering(t *testing.T) {
	s := serve(t, folder(t, issue(t, catest.NewCA(catest.Options{}))))
	told := make(chan string, 1)
	_, err := s.Watch(agent, "default", func(name string) { told <- name })
	must(t, err, s.Close(), s.Close())
	if <-told != "default" {
		t.Error("another name got a notice")
	}
	s.fails("default", secret.ErrClosed)
	if _, err := s.Watch(agent, "default", func(string) {}); !errors.Is(err, secret.ErrClosed) {
		t.Errorf("Watch: %v", err)
	}
}

func TestFirstMountedLayoutIsFound(t *testing.T) {
	t.Chdir(t.TempDir())
	f := issue(t, catest.NewCA(catest.Options{}))
	for _, l := range slices.Backward(filesecret.Layouts()) {
		if l.HasPair() || l.HasRoots() {
			t.Errorf("%s is there already", l.Chain)
		}
		must(t, os.MkdirAll(at(l.Chain, ".."), 0o700), os.WriteFile(l.Chain, f["cert-chain.pem"], 0o600))
		if l.HasPair() {
			t.Errorf("%s alone is not a pair", l.Chain)
		}
		must(t, os.WriteFile(l.Key, f["key.pem"], 0o600), os.WriteFile(l.Roots, f["root-cert.pem"], 0o600))
		if !l.HasPair() || !l.HasRoots() {
			t.Errorf("%s is not found", l.Chain)
		}
	}
}

// HAProxy and Postfix read both from one file, in either order.
func TestCertificateAndKeyMayShareFile(t *testing.T) {
	f := issue(t, catest.NewCA(catest.Options{Intermediates: 1}))
	for _, both := range [][]byte{join(f["cert-chain.pem"], f["key.pem"]), join(f["key.pem"], f["cert-chain.pem"])} {
		dir := folder(t, files{"both.pem": both})
		path := filepath.Join(dir, "both.pem")
		if got := serving(t, filesecret.Config{Secrets: []filesecret.Spec{{Name: "default", Chain: path, Key: path}}}).held("default").Chain; !bytes.Equal(got, f["cert-chain.pem"]) {
			t.Errorf("got %s", got)
		}
	}
}
