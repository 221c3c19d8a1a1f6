package main

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// program returns the path of a program that make check NAME=dist names.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not set", variable)
		}
		t.Skipf("%s is not set: run make check NAME=dist", variable)
	}
	return path
}

func released() source {
	return source{version: "v0.1.0", commit: "c0ffee", time: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC), toolchain: "go1.27.1"}
}

// tree is a folder of two files, made at a given time with a given umask.
func tree(t *testing.T, content string, when time.Time, mode os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o700))
	for name, mode := range map[string]os.FileMode{"bin/b": mode | 0o100, "a": mode} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), mode))
		must(t, os.Chtimes(filepath.Join(dir, name), when, when))
	}
	return dir
}

func TestArchiveDependsOnNamesAndContentsAlone(t *testing.T) {
	for name, pack := range map[string]func(io.Writer, string, string, time.Time) error{"tar.gz": tarGz, "zip": zipped} {
		packed := func(content string, when time.Time, mode os.FileMode) string {
			var text bytes.Buffer
			must(t, pack(&text, tree(t, content, when, mode), "countersign", released().time))
			return text.String()
		}
		first := packed("x", time.Now(), 0o644)
		if packed("x", time.Unix(1, 0), 0o600) != first {
			t.Errorf("%s: time, mode or place of the files matter", name)
		}
		if packed("y", time.Now(), 0o644) == first {
			t.Errorf("%s: the content does not matter", name)
		}
	}
}

func TestLinkIsNotPacked(t *testing.T) {
	dir := tree(t, "x", time.Now(), 0o600)
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	if err := tarGz(io.Discard, dir, "", time.Time{}); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Errorf("got %v", err)
	}
}

// keys returns a signer, and the file of its public key.
func keys(t *testing.T) (*signer, string) {
	t.Helper()
	public, secret, err := minisign.GenerateKey(nil)
	must(t, err)
	text, err := secret.MarshalText()
	must(t, err)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "key"), text, 0o600))
	text, err = public.MarshalText()
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "key.pub"), text, 0o600))
	s, err := readSigner(filepath.Join(dir, "key"))
	must(t, err)
	return s, filepath.Join(dir, "key.pub")
}

// The servers are for Linux alone, and so are their pages.
func TestStageHasPagesOfItsPrograms(t *testing.T) {
	d := staged(t, "countersign", "countersign-provider-file")
	mac := platform{"darwin", host().arch}
	must(t, d.pages(mac, map[string]string{"countersign": "", "countersign-provider-file": ""}, program(t, "COUNTERSIGN_PROGRAMS")))
	found := map[string]bool{}
	must(t, filepath.WalkDir(d.stage(mac), func(path string, _ fs.DirEntry, err error) error {
		found[filepath.Base(path)] = true
		return err
	}))
	for name, want := range map[string]bool{"countersign-agent.1.gz": true, "countersign.yaml.5.gz": true, "_countersign": true, "_countersign-ra": false, "countersign-ra.1.gz": false} {
		if found[name] != want {
			t.Errorf("%s: %t", name, found[name])
		}
	}
}

// What follows such a word is not read as flags.
func TestWordBesideFlagsIsRefused(t *testing.T) {
	if os.Getenv(beDist) != "" {
		os.Args = []string{"dist", "-version", "x", "-platforms", "linux/amd64", "linux/arm64", "-key", "absent"}
		main()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestWordBesideFlagsIsRefused$")
	cmd.Env = append(os.Environ(), beDist+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), `unexpected "linux/arm64": platforms`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// beDist has a test's binary be the program.
const beDist = "COUNTERSIGN_TEST_BE_DIST"

func TestMinisignVerifiesSignature(t *testing.T) {
	command := program(t, "COUNTERSIGN_MINISIGN")
	s, public := keys(t)
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, []byte("content"), 0o600))
	must(t, s.sign(path, "what it is"))
	out, err := exec.Command(command, "-Vm", path, "-p", public).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Trusted comment: what it is") {
		t.Errorf("%v\n%s", err, out)
	}
	first, err := os.ReadFile(path + ".minisig")
	must(t, err)
	must(t, s.sign(path, "what it is"))
	if again, _ := os.ReadFile(path + ".minisig"); !bytes.Equal(again, first) {
		t.Error("the second signature is another")
	}
	must(t, os.WriteFile(path, []byte("contents"), 0o600))
	if out, err := exec.Command(command, "-Vm", path, "-p", public).CombinedOutput(); err == nil {
		t.Errorf("another content is verified:\n%s", out)
	}
}

func TestKeyIsNotQuoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(path, []byte("untrusted comment: x\nsecret!\n"), 0o600))
	if _, err := readSigner(path); err == nil || strings.Contains(err.Error(), "secret!") {
		t.Errorf("got %v", err)
	}
}

// staged lays out some of the tests' programs.
func staged(t *testing.T, names ...string) *dist {
	t.Helper()
	bin := program(t, "COUNTERSIGN_PROGRAMS")
	built := map[string]string{}
	for _, name := range names {
		built[name] = filepath.Join(bin, name)
	}
	s, _ := keys(t)
	d := &dist{source: released(), signer: s, out: t.TempDir()}
	d.root = root(t)
	lock, err := hostLock(built)
	must(t, err)
	must(t, d.layOut(host(), built, lock))
	must(t, writeFile(filepath.Join(d.stage(host()), licences, "LICENSE"), []byte("text"), 0o644))
	must(t, writeFile(filepath.Join(d.stage(host()), bill), []byte("{}"), 0o644))
	return d
}

// The servers' hashes are those of the platform's files; where there are no servers, there are none.
func TestReleaseHasPinsOfServers(t *testing.T) {
	d := staged(t, "countersign", "countersign-ra", "countersign-provider-file")
	text, err := os.ReadFile(filepath.Join(d.stage(host()), lockFile))
	must(t, err)
	for _, name := range []string{binaries + "/countersign-ra", providers + "/countersign-provider-file"} {
		hash, _, err := sum(filepath.Join(d.stage(host()), name))
		if must(t, err); !strings.Contains(string(text), hash) {
			t.Errorf("no pin of %s is %s: %s", name, hash, text)
		}
	}
	var l lockText
	must(t, json.Unmarshal(text, &l))
	mac := platform{"darwin", "arm64"}
	must(t, copyFile(filepath.Join(d.stage(host()), providers, "countersign-provider-file"), filepath.Join(d.stage(mac), providers, "countersign-provider-file"), 0o755))
	must(t, l.write(mac, d.stage(mac)))
	text, err = os.ReadFile(filepath.Join(d.stage(mac), lockFile))
	if must(t, err); strings.Contains(string(text), "countersign-ra") || !strings.Contains(string(text), "countersign-provider-file") {
		t.Errorf("on a Mac: %s", text)
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := output(".", "git", "rev-parse", "--show-toplevel")
	must(t, err)
	return dir
}

func TestReleaseIsCompleteAndSigned(t *testing.T) {
	d := staged(t, "countersign", "countersign-provider-file")
	must(t, d.singles(host()))
	must(t, d.packages(host()))
	must(t, d.chart())
	must(t, d.libraries())
	must(t, d.writeIndex())
	must(t, d.finish([]platform{host()}))
	names, err := files(d.out)
	must(t, err)
	single, rpm := d.name("countersign-provider-file", host()), map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[host().arch]
	want := []string{
		"SHA256SUMS", "SHA256SUMS.minisig", "countersign-0.1.0-1." + rpm + ".rpm", "countersign-0.1.0.tgz", "countersign-0.1.0.tgz.minisig",
		"countersign-provider-0.1.0.crate", "countersign-provider-0.1.0.crate.minisig", "countersign-provider-0.1.0.tgz", "countersign-provider-0.1.0.tgz.minisig",
		single + ".gz", single + ".minisig", "countersign_0.1.0_" + host().arch + ".deb",
		"countersign_provider-0.1.0-py3-none-any.whl", "countersign_provider-0.1.0-py3-none-any.whl.minisig",
		"countersign_provider-0.1.0.tar.gz", "countersign_provider-0.1.0.tar.gz.minisig", "index.json", "index.json.minisig", "provenance.json", "provenance.json.minisig",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got %s, want %s", names, want)
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = d.out
	if out, err := sums.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != len(names)-3 {
		t.Errorf("%v\n%s", err, out)
	}
	var s statement
	text, err := os.ReadFile(filepath.Join(d.out, "provenance.json"))
	must(t, err)
	must(t, json.Unmarshal(text, &s))
	if len(s.Subject) != len(names)-4 || s.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] != "c0ffee" {
		t.Errorf("%s", text)
	}
}

// proxy is the folder of make release NAME=modules, with the version of released.
func proxy(t *testing.T) string {
	t.Helper()
	temp := t.TempDir()
	modules := exec.Command("go", "run", "-C", "../modules", ".", "v0.1.0", temp)
	modules.Env = append(os.Environ(), "GOWORK=off")
	if out, err := modules.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return temp
}

// make release as a whole, with one provider: all that it promises is there, and the same bytes come
// of a second run in other folders. Its programs have the version, and only modules that the go.sum
// files know.
func TestReleaseIsTheSameEachTime(t *testing.T) {
	modules, signer := proxy(t), func() *signer { s, _ := keys(t); return s }()
	s := released()
	s.root = root(t)
	var first map[string]string
	for range 2 {
		b := smallBuilder(t, s, modules)
		d := &dist{source: s, signer: signer, out: t.TempDir(), builder: b}
		must(t, d.make([]platform{host()}))
		hashes := hashesOf(t, d.out)
		if first == nil {
			first = hashes
			refusesOtherPrograms(t, b)
		}
		if !maps.Equal(first, hashes) {
			t.Errorf("the second time: %v\nthe first time: %v", hashes, first)
		}
	}
}

// smallBuilder has one provider: all would take minutes.
func smallBuilder(t *testing.T, s source, modules string) *builder {
	t.Helper()
	b, err := newBuilder(s, modules, t.TempDir())
	must(t, err)
	for module, packages := range b.packages {
		b.packages[module] = slices.DeleteFunc(packages, func(name string) bool {
			return strings.Contains(name, "/countersign-provider-") && !strings.Contains(name, "/countersign-provider-file@")
		})
	}
	return b
}

func hashesOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	names, err := files(folder)
	must(t, err)
	hashes := map[string]string{}
	for _, name := range names {
		hash, _, err := sum(filepath.Join(folder, name))
		must(t, err)
		hashes[name] = hash
	}
	return hashes
}

func refusesOtherPrograms(t *testing.T, b *builder) {
	t.Helper()
	of := *b
	built := filepath.Join(of.bin(host()), "countersign-provider-file")
	of.known = map[string]bool{}
	if err := of.checkSums(built); err == nil || !strings.Contains(err.Error(), "which no go.sum has") {
		t.Errorf("got %v", err)
	}
	of.version = "v0.2.0"
	if err := of.checkSums(built); err == nil || !strings.Contains(err.Error(), "is of version v0.1.0") {
		t.Errorf("got %v", err)
	}
}
