package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// needed are the only programs of a test's root besides what the package installs: a shell,
// and what the package's scripts call.
var needed = []string{"sh", "getent", "useradd", "install", "head", "env", "rm", "rmdir"}

// inNamespace runs the tests in namespaces of their own: mounts vanish with the last process,
// and so does whatever a test has started.
const inNamespace = "COUNTERSIGN_IN_NAMESPACE"

func TestMain(m *testing.M) {
	if os.Geteuid() == 0 && os.Getenv(inNamespace) == "" {
		os.Exit(alone())
	}
	compression = "none"
	code := m.Run()
	_ = os.RemoveAll(staged.folder)
	os.Exit(code)
}

func alone() int {
	cmd := exec.Command("unshare", append([]string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", os.Args[0]}, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), inNamespace+"=yes")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "unshare:", err)
		return 1
	}
	return 0
}

// root is a system with next to nothing on it.
type root string

func newRoot(t *testing.T) root {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("only root installs packages: CI leaves no test out")
		}
		t.Skip("only root installs packages")
	}
	dir, err := os.MkdirTemp("", "root")
	check(t, err)
	check(t, os.Chmod(dir, 0o755))
	r := root(dir)
	for _, dir := range []string{"proc", "dev", "tmp", "etc", "run/countersign", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"} {
		check(t, os.MkdirAll(r.path(dir), 0o755))
	}
	check(t, os.Chmod(r.path("tmp"), 0o777|os.ModeSticky))
	r.write(t, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
	r.write(t, "etc/group", "root:x:0:\n")
	r.write(t, "var/lib/dpkg/status", "Package: passwd\nStatus: install ok installed\nArchitecture: all\nVersion: 1\nMaintainer: -\nDescription: -\n")
	for _, name := range needed {
		r.bring(t, name)
	}
	for _, dir := range []string{"proc", "dev"} {
		check(t, syscall.Mount("/"+dir, r.path(dir), "", syscall.MS_BIND|syscall.MS_REC, ""))
	}
	t.Cleanup(func() {
		for _, dir := range []string{"proc", "dev"} {
			check(t, syscall.Unmount(r.path(dir), syscall.MNT_DETACH))
		}
		check(t, os.RemoveAll(dir))
	})
	return r
}

func (r root) path(name string) string { return filepath.Join(string(r), name) }

func (r root) write(t *testing.T, name, text string) {
	t.Helper()
	check(t, os.WriteFile(r.path(name), []byte(text), 0o644))
}

func (r root) exists(name string) bool {
	_, err := os.Lstat(r.path(name))
	return err == nil
}

// library is what ldd shows of one.
var library = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// bring copies a program of this machine, with the libraries that it needs.
func (r root) bring(t *testing.T, name string) {
	t.Helper()
	path, err := exec.LookPath(name)
	check(t, err)
	r.copy(t, path, filepath.Join("/bin", name))
	linked, _ := exec.Command("ldd", path).Output() // of a script or a static program: none
	for _, found := range library.FindAllStringSubmatch(string(linked), -1) {
		r.copy(t, found[1], found[1])
	}
}

func (r root) copy(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	check(t, err)
	check(t, os.MkdirAll(filepath.Dir(r.path(to)), 0o755))
	check(t, os.WriteFile(r.path(to), text, 0o755))
}

// upgrade installs a newer package of the root, and returns what that prints.
func (r root) upgrade(t *testing.T, file string) string {
	t.Helper()
	said, err := exec.Command("dpkg", "--root="+string(r), "--force-not-root", "--install", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return string(said)
}

// dpkg runs this machine's dpkg on the root; the package's scripts run in it.
func (r root) dpkg(t *testing.T, args ...string) string {
	t.Helper()
	return output(t, exec.Command("dpkg", append([]string{"--root=" + string(r), "--force-not-root"}, args...)...))
}

// command is one in the root, as a user.
func (r root) command(t *testing.T, user string, args ...string) *exec.Cmd {
	t.Helper()
	uid, gid := r.user(t, user)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Path, cmd.Dir = args[0], "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", "XDG_RUNTIME_DIR=/run/countersign", "XDG_CACHE_HOME=/var/lib/countersign"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: string(r), Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return cmd
}

// rpm does the same with this machine's rpm, which has no packages of a Debian's root.
func (r root) rpm(t *testing.T, args ...string) string {
	t.Helper()
	return output(t, exec.Command(foreign(t, "COUNTERSIGN_RPM"), append([]string{"--root=" + string(r), "--nodeps", "--nosignature"}, args...)...))
}

// systemctl is a stand-in, which writes down what it is asked. A unit is enabled if there is a file of
// its name, and that says how it is started.
const systemctl = `#!/bin/sh
echo "$*" >>/systemctl.log
case "$*" in
is-*) [ -e "/enabled/$3" ] ;;
show*) read -r started <"/enabled/$4" && echo "$started" ;;
esac
`

// standInSystemd makes the root look as if systemd ran in it.
func (r root) standInSystemd(t *testing.T) {
	t.Helper()
	check(t, os.MkdirAll(r.path("run/systemd/system"), 0o755))
	check(t, os.MkdirAll(r.path("enabled"), 0o755))
	r.enable(t, "countersign", "/usr/bin/countersign agent --config /etc/countersign/countersign.yaml")
	r.write(t, "bin/systemctl", systemctl)
	check(t, os.Chmod(r.path("bin/systemctl"), 0o755))
}

func (r root) enable(t *testing.T, service, command string) {
	t.Helper()
	r.write(t, "enabled/"+service+".service", "{ path=/usr/bin/x ; argv[]="+command+" ; ignore_errors=no ; pid=0 }\n")
}

// asked demands what systemctl was asked since the last time.
func (r root) asked(t *testing.T, want ...string) {
	t.Helper()
	got, _ := os.ReadFile(r.path("systemctl.log"))
	if text := strings.Join(append(want, ""), "\n"); string(got) != text {
		t.Errorf("systemctl was asked\n%s\nnot\n%s", got, text)
	}
	check(t, os.RemoveAll(r.path("systemctl.log")))
}

// user returns the numbers of a user of the root.
func (r root) user(t *testing.T, name string) (uid, gid int) {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + `:[^:]*:(\d+):(\d+):`).FindStringSubmatch(r.read(t, "etc/passwd"))
	if found == nil {
		t.Fatalf("there is no user %s", name)
	}
	_, err := fmt.Sscan(found[1]+" "+found[2], &uid, &gid)
	check(t, err)
	return uid, gid
}

func (r root) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(r.path(name))
	check(t, err)
	return string(text)
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, errs.String())
	}
	return string(out)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
