package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// container is the image of the agent, unpacked for a real runtime.
type container struct {
	runc, state, bundle string
	config              v1.Config
}

const containerID = "countersign-dist-test"

func newContainer(t *testing.T) container {
	t.Helper()
	runc := program(t, "COUNTERSIGN_RUNC")
	if os.Geteuid() != 0 {
		t.Skip("to run a container here needs root")
	}
	img, err := staged(t, "countersign", "countersign-provider-file").built(allImages[0], host())
	must(t, err)
	c := container{runc: runc, state: t.TempDir(), bundle: t.TempDir()}
	must(t, os.Mkdir(c.path(""), 0o755))
	must(t, os.Chmod(c.path(""), 0o755))
	unpack(t, img, c.path(""))
	config, err := img.ConfigFile()
	must(t, err)
	c.config = config.Config
	return c
}

func (c container) path(name string) string { return filepath.Join(c.bundle, "rootfs", name) }

// command is a container that runs the image's program.
func (c container) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(c.bundle, "config.json"), runtimeConfig(t, c.config, args), 0o600))
	return c.runtime("run", "--bundle", c.bundle, containerID)
}

func (c container) runtime(args ...string) *exec.Cmd {
	return exec.Command(c.runc, append([]string{"--root", c.state}, args...)...)
}

// A container of the image, with nothing but what a runtime mounts, verifies its providers and
// runs them as its user.
func TestImageRunsInContainer(t *testing.T) {
	c := newContainer(t)
	must(t, filepath.WalkDir(c.path(""), func(path string, entry fs.DirEntry, err error) error {
		must(t, err)
		info, err := entry.Info()
		if info.Mode()&0o022 != 0 && info.Mode()&(os.ModeSticky|os.ModeSymlink) == 0 {
			t.Errorf("%s is %s", path, info.Mode())
		}
		return err
	}))
	if text, err := os.ReadFile(c.path("usr/share/licenses/ca-certificates/LICENSE")); err != nil || !strings.HasPrefix(string(text), "Mozilla Public License") {
		t.Errorf("the roots have no licence: %v", err)
	}
	for says, args := range map[string][]string{
		"matches: /usr/lib/countersign/providers/countersign-provider-file": {"provider", "verify", "--lock", "/usr/lib/countersign/countersign.lock"},
		"abilities: ": {"provider", "list", "--runtime-dir", "/run/countersign"}, // pinned without being told where
	} {
		out, err := c.command(t, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), says) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// The configuration for containers in docs/install.md leads to a served certificate.
func TestContainerOfInstallPageServes(t *testing.T) {
	c := newContainer(t)
	page, err := os.ReadFile(filepath.Join(root(t), "docs/install.md"))
	must(t, err)
	config := regexp.MustCompile("(?s)\n## A container\n.*?\n```yaml\n(.*?)```\n").FindSubmatch(page)
	if config == nil {
		t.Fatal("the page has no configuration")
	}
	must(t, writeFile(c.path("etc/countersign/countersign.yaml"), config[1], 0o644))
	agent := c.command(t, "agent", "--config", "/etc/countersign/countersign.yaml")
	log, err := agent.StderrPipe()
	must(t, err)
	must(t, agent.Start())
	t.Cleanup(func() { _ = c.runtime("delete", "--force", containerID).Run() }) // if it still runs
	late := time.AfterFunc(2*time.Minute, func() { _ = c.runtime("kill", containerID, "KILL").Run() })
	defer late.Stop()
	said := ""
	for lines := bufio.NewScanner(log); !strings.Contains(said, "serving new certificate"); said += lines.Text() + "\n" {
		if !lines.Scan() {
			t.Fatalf("the agent ended: %v\n%s", agent.Wait(), said)
		}
	}
	out, err := c.runtime("exec", containerID, "/usr/bin/countersign", "secrets", "watch", "--socket", "/run/countersign/socket", "--for", "2m", "--count", "2").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "spiffe://example.org/ns/default/sa/web") {
		t.Errorf("%v\n%s\n%s", err, out, said)
	}
	must(t, c.runtime("kill", containerID, "TERM").Run())
	rest, err := io.ReadAll(log)
	if err := errors.Join(err, agent.Wait()); err != nil {
		t.Errorf("the agent ended with %v\n%s%s", err, said, rest)
	}
}

// unpack lays out the file system of an image. It keeps modes and owners.
func unpack(t *testing.T, img v1.Image, root string) {
	t.Helper()
	layers, err := img.Layers()
	must(t, err)
	for _, layer := range layers {
		packed, err := layer.Compressed()
		must(t, err)
		text, err := gzip.NewReader(packed)
		must(t, err)
		from := tar.NewReader(text)
		for {
			header, err := from.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			path := filepath.Join(root, header.Name)
			if header.Typeflag == tar.TypeSymlink {
				must(t, os.Symlink(header.Linkname, path))
				continue
			}
			if header.Typeflag == tar.TypeDir {
				must(t, os.MkdirAll(path, 0o700))
			} else {
				file, err := os.Create(path)
				must(t, err)
				_, err = io.Copy(file, from)
				must(t, errors.Join(err, file.Close()))
			}
			must(t, os.Chmod(path, header.FileInfo().Mode()))
			must(t, os.Lchown(path, header.Uid, header.Gid))
		}
	}
}

// runtimeConfig is what a runtime makes of an image's configuration.
func runtimeConfig(t *testing.T, c v1.Config, args []string) []byte {
	t.Helper()
	if c.User != "1337:1337" {
		t.Errorf("the user is %s", c.User)
	}
	type object = map[string]any
	tmpfs := func(at, mode string) object {
		return object{"destination": at, "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", mode}}
	}
	text, err := json.Marshal(object{
		"ociVersion": "1.0.2",
		"root":       object{"path": "rootfs", "readonly": true},
		"process": object{
			"user": object{"uid": 1337, "gid": 1337}, "cwd": c.WorkingDir, "env": c.Env, "args": append(c.Entrypoint, args...), "noNewPrivileges": true,
		},
		"mounts": []object{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			tmpfs("/dev", "mode=755"), tmpfs("/run/countersign", "uid=1337"),
		},
		"linux": object{"namespaces": []object{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}}},
	})
	must(t, err)
	return text
}
