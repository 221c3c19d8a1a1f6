package main

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	provider = "lib/countersign/providers/countersign-provider-file"
	lockFile = "lib/countersign/providers/countersign.lock"
)

// What the packages' scripts ask of systemd.
const (
	isEnabled = "is-enabled --quiet countersign.service"
	startedBy = "show --property=ExecStart --value countersign.service"
	restart   = "restart countersign.service"
	disable   = "--no-reload disable --now countersign.service"
	stop      = "stop countersign.service"
)

// small is all that most tests' packages hold: packing takes time.
var small = []string{"countersign", "countersign-provider-file"}

var staged struct {
	sync.Once
	folder string // empty: it failed
}

// stageOf returns a copy of a tree of the small programs as `make release NAME=packages` lays it out.
func stageOf(t *testing.T) string {
	t.Helper()
	staged.Do(func() {
		folder, err := os.MkdirTemp("", "stage")
		check(t, err)
		layOut(t, folder, small)
		staged.folder = folder
	})
	if staged.folder == "" {
		t.Fatal("another test could not lay out the tree")
	}
	stage := filepath.Join(t.TempDir(), "stage")
	output(t, exec.Command("cp", "-R", staged.folder, stage))
	return stage
}

func layOut(t *testing.T, stage string, programs []string) {
	t.Helper()
	from, built := t.TempDir(), os.Getenv("COUNTERSIGN_PROGRAMS")
	if built == "" {
		t.Fatal("COUNTERSIGN_PROGRAMS is not set: make check NAME=packages sets it")
	}
	for _, name := range programs {
		text, err := os.ReadFile(filepath.Join(built, name))
		check(t, err)
		check(t, os.WriteFile(filepath.Join(from, name), text, 0o755))
	}
	output(t, exec.Command("../../scripts/stage", from, stage))
}

// secondBuild makes the provider of a stage another build's, and locks it: what follows the end of
// a program changes its hash, and nothing else.
func secondBuild(t *testing.T, stage string) {
	t.Helper()
	path := filepath.Join(stage, provider)
	first := sumOf(t, path)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	_, err = file.WriteString("a second build")
	check(t, errors.Join(err, file.Close()))
	lock := filepath.Join(stage, lockFile)
	text, err := os.ReadFile(lock)
	check(t, err)
	check(t, os.WriteFile(lock, []byte(strings.Replace(string(text), first, sumOf(t, path), 1)), 0o644))
}

// packed returns the folder of a stage's packages, of a format.
func packed(t *testing.T, stage, version, format string) string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	to := t.TempDir()
	check(t, run(stage, version, to, format))
	return to
}

func one(t *testing.T, folder, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found[0]
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// What an operator does: install, start; upgrade while it runs; remove; purge.
func TestPackageOnCleanMachine(t *testing.T) {
	r := newRoot(t)
	r.standInSystemd(t)
	stage := stageOf(t)
	r.dpkg(t, "--install", one(t, packed(t, stage, "v0.1.0", "deb"), "*.deb"))
	r.asked(t, "daemon-reload")
	uid, gid := r.user(t, "countersign")
	check(t, os.Chown(r.path("run/countersign"), uid, gid)) // as systemd does

	a := r.startAgent(t)
	a.await(t, "serving new certificate")
	held := output(t, r.command(t, "countersign", "/usr/bin/countersign", "secrets", "watch", "--socket", "/run/countersign/socket", "--for", "2m", "--count", "2"))
	if !strings.Contains(held, "spiffe://example.org/ns/default/sa/web") {
		t.Errorf("served: %s", held)
	}

	// The operator has changed the configuration; the package has not.
	config := r.read(t, "etc/countersign/countersign.yaml") + "# mine\n"
	r.write(t, "etc/countersign/countersign.yaml", config)
	secondBuild(t, stage)
	r.dpkg(t, "--unpack", one(t, packed(t, stage, "v0.2.0", "deb"), "*.deb"))
	a.await(t, "starting new provider generation")
	a.crashProviders(t)                     // of the old and the new build, in the middle of it
	a.await(t, "provider=file state=ready") // mostly the old one, whose bytes the agent holds
	r.asked(t)
	r.dpkg(t, "--configure", "-a")
	r.asked(t, "daemon-reload", isEnabled, startedBy, restart)
	sum := sumOf(t, r.path("usr/"+provider))
	if !strings.Contains(r.status(t), sum) {
		check(t, a.cmd.Process.Signal(syscall.SIGHUP)) // with systemd, the package restarts it
	}
	// The new build may be starting already: then the signal starts none.
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if strings.Contains(r.status(t), sum) {
			break
		}
	}
	if r.read(t, "etc/countersign/countersign.yaml") != config {
		t.Error("the configuration was replaced")
	}
	if sum != sumOf(t, filepath.Join(stage, provider)) || !strings.Contains(r.status(t), sum) {
		t.Errorf("the agent does not run the second build, %s:\n%s", sum, r.status(t))
	}
	a.stop(t)

	again := r.startAgent(t)
	again.await(t, "serving certificate restored from state")
	again.stop(t)

	r.dpkg(t, "--remove", "countersign")
	r.asked(t, stop, "daemon-reload")
	if r.exists("usr/bin/countersign") || r.exists("usr/"+provider) || !r.exists("etc/countersign/countersign.yaml") || !r.exists("var/lib/countersign/ca") {
		t.Error("removed too little, or too much")
	}
	r.dpkg(t, "--purge", "countersign")
	if r.exists("etc/countersign") || r.exists("var/lib/countersign") || r.exists("usr/lib/countersign") {
		t.Error("purged too little")
	}
}

// The same of rpm, which keeps state and a changed configuration at the end.
func TestRPMOnCleanMachine(t *testing.T) {
	foreign(t, "COUNTERSIGN_RPM")
	r := newRoot(t)
	r.standInSystemd(t)
	stage := stageOf(t)
	r.rpm(t, "--install", one(t, packed(t, stage, "v0.1.0", "rpm"), "*.rpm"))
	r.asked(t, "daemon-reload")
	output(t, r.command(t, "countersign", "/usr/bin/countersign", "config", "validate", "--config", "/etc/countersign/countersign.yaml"))

	config := r.read(t, "etc/countersign/countersign.yaml") + "# mine\n"
	r.write(t, "etc/countersign/countersign.yaml", config)
	secondBuild(t, stage)
	r.rpm(t, "--upgrade", one(t, packed(t, stage, "v0.2.0", "rpm"), "*.rpm"))
	r.asked(t, "daemon-reload", isEnabled, startedBy, restart)
	if r.read(t, "etc/countersign/countersign.yaml") != config {
		t.Error("the configuration was replaced")
	}
	output(t, r.command(t, "countersign", "/usr/bin/countersign", "config", "validate", "--config", "/etc/countersign/countersign.yaml"))

	r.rpm(t, "--erase", "countersign")
	r.asked(t, disable, "daemon-reload")
	if left := output(t, exec.Command("find", r.path("usr"), "-name", "*countersign*")); left != "" {
		t.Errorf("left behind:\n%s", left)
	}
	if !r.exists("var/lib/countersign") || r.read(t, "etc/countersign/countersign.yaml.rpmsave") != config {
		t.Error("erased too much")
	}
}

func TestPackagesAreReproducible(t *testing.T) {
	compression = "" // as in a release
	defer func() { compression = "none" }()
	stage := stageOf(t)
	for format, pattern := range map[string]string{"deb": "countersign_0.1.0-rc.1_*.deb", "rpm": "*.rpm"} {
		a, b := packed(t, stage, "v0.1.0-rc.1", format), packed(t, stage, "v0.1.0-rc.1", format)
		if sumOf(t, one(t, a, pattern)) != sumOf(t, one(t, b, pattern)) {
			t.Errorf("%s differs", pattern)
		}
	}
}

// The agent's binary runs the servers by the pins that are installed with them.
func TestServersArePinned(t *testing.T) {
	stage := filepath.Join(t.TempDir(), "stage")
	layOut(t, stage, append(small[:2:2], "countersign-ra"))
	lock, err := os.ReadFile(filepath.Join(stage, lockFile))
	check(t, err)
	if sum := sumOf(t, filepath.Join(stage, "bin/countersign-ra")); !strings.Contains(string(lock), sum) {
		t.Errorf("no pin is %s: %s", sum, lock)
	}
	if os.Geteuid() == 0 { // whose lock file alone is a package's
		output(t, exec.Command(filepath.Join(stage, "bin/countersign"), "ra", "help"))
	}
}

// foreign returns a program of Debian's that the Makefile names.
func foreign(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	switch {
	case path != "":
	case os.Getenv("CI") != "":
		t.Fatalf("%s is not set: CI leaves no test out", variable)
	default:
		t.Skipf("%s is not set: make check NAME=packages sets it", variable)
	}
	return path
}

func TestRPMHoldsTheSame(t *testing.T) {
	rpm, stage := foreign(t, "COUNTERSIGN_RPM"), wholeStage(t)
	folder := packed(t, stage, "v0.1.0", "rpm")
	file := one(t, folder, "countersign-0.1.0-1.*.rpm")
	listed := output(t, exec.Command(rpm, "-qpl", file))
	for _, path := range []string{
		"/etc/countersign/countersign.yaml", "/usr/bin/countersign", "/usr/lib/countersign/providers/countersign-provider-file",
		"/usr/lib/countersign/providers/countersign.lock", "/usr/lib/systemd/system/countersign.service",
		"/usr/share/man/man1/countersign-agent.1.gz", "/usr/share/man/man5/countersign.yaml.5.gz", "/usr/share/zsh/site-functions/_countersign",
	} {
		if !strings.Contains("\n"+listed, "\n"+path+"\n") {
			t.Errorf("%s is missing", path)
		}
	}
	if config := output(t, exec.Command(rpm, "-qpc", file)); config != "/etc/countersign/countersign.yaml\n" {
		t.Errorf("configuration: %s", config)
	}
	server := one(t, folder, "countersign-ra-0.1.0-1.*.rpm")
	if other := output(t, exec.Command(rpm, "-qp", "--conflicts", "--recommends", "-l", server)); !strings.HasPrefix(other, "countersign < 0.1.0~\ncountersign\n") || !strings.Contains(other, "/usr/lib/countersign/providers/countersign-ra.lock\n") {
		t.Errorf("the registration authority's package: %s", other)
	}
}

// The pages come from what the programs print: a word of theirs must not be a macro.
func TestManualPagesAreWellFormed(t *testing.T) {
	mandoc := foreign(t, "COUNTERSIGN_MANDOC")
	stage := filepath.Join(t.TempDir(), "stage")
	layOut(t, stage, append(small[:2:2], "countersign-discovery", "countersign-ra"))
	pages, err := filepath.Glob(filepath.Join(stage, "share/man/man*/*"))
	check(t, err)
	if len(pages) < 30 {
		t.Errorf("only %d pages", len(pages))
	}
	words := output(t, exec.Command("zcat", filepath.Join(stage, "share/man/man1/countersign.1.gz"), filepath.Join(stage, "share/man/man1/countersign-init.1.gz")))
	for _, section := range []string{"FILES", "ENVIRONMENT", "EXIT STATUS", "EXAMPLES", "SEE ALSO"} {
		if !strings.Contains(words, ".SH \""+section+"\"\n") {
			t.Errorf("no page has the section %s", section)
		}
	}
	for _, page := range pages {
		said, _ := exec.Command(mandoc, "-T", "lint", "-W", "warning", page).Output() // fails at any of them
		for line := range strings.Lines(string(said)) {
			if !strings.Contains(line, "missing date") { // two runs make the same pages
				t.Error(line)
			}
		}
	}
}

// Of another machine's programs, which `make release` has laid out, none is run.
func TestStageOfAnotherMachineIsPacked(t *testing.T) {
	from, stage := stageOf(t), filepath.Join(t.TempDir(), "stage")
	check(t, os.WriteFile(filepath.Join(from, provider+".minisig"), []byte("a signature"), 0o644))
	program, err := os.OpenFile(filepath.Join(from, "bin/countersign"), os.O_WRONLY, 0)
	check(t, err)
	_, err = program.WriteAt([]byte{byte(elf.EM_AARCH64), 0}, 18)
	check(t, errors.Join(err, program.Close()))
	output(t, exec.Command("../../scripts/stage", from, stage))

	listed := output(t, exec.Command("dpkg-deb", "--contents", one(t, packed(t, stage, "v0.1.0", "deb"), "countersign_0.1.0_arm64.deb")))
	for _, line := range []string{
		`-rwxr-xr-x root/root .* ./usr/` + provider,
		`-rw-r--r-- root/root .* ./usr/` + provider + `\.minisig`,
		`-rw-r--r-- root/root .* ./usr/` + lockFile,
		`-rw-r--r-- root/root .* ./usr/share/man/man1/countersign-agent.1.gz`,
		`-rw-r--r-- root/root .* ./usr/lib/systemd/system/countersign.service`,
	} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(listed) {
			t.Errorf("no line is %s:\n%s", line, listed)
		}
	}
}
