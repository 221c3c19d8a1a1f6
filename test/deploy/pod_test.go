//go:build e2e && linux

package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// inPod makes of the folder $0 the root of a pod: nothing else of the machine is there, and
// nothing can be written but where the Deployment has a tmpfs. What is there is left as the
// Deployment's user.
const inPod = `
mount --bind "$0" "$0"
mount -t proc none "$0/proc"
mount -t tmpfs -o mode=755 none "$0/dev" && : > "$0/dev/null" && mount --bind /dev/null "$0/dev/null"
mount -t tmpfs -o size=16m,mode=2777,gid=1337 none "$0/run/countersign"
mount -o remount,bind,ro "$0"
exec setpriv --no-new-privs chroot --userspec=1337:1337 --groups=1337 "$0" "$@"
`

// pod is the file system of one, laid out by the image and the Deployment.
type pod struct {
	root string
	env  []string
}

// image lays out what an image of tools/dist does, with these programs alone. The one provider is that
// which the deployed configuration names.
func image(t *testing.T, names ...string) (root string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("to lay out a pod needs root")
	}
	bin, root := programs.Folder(t, names...), t.TempDir()
	layOut := exec.CommandContext(t.Context(), programs.File(t, "scripts/image-root"), bin, root)
	layOut.Env = []string{"PATH=" + os.Getenv("PATH")} // the agent refuses variables that it does not know
	done(t, layOut)
	must(t, os.Chmod(root, 0o755)) // #nosec G302 -- a pod's user reads it
	return root
}

// newPod has an image, and volumes by their names, with their files.
func newPod(t *testing.T, image string, spec corev1.PodSpec, volumes map[string]map[string]string, env ...string) *pod {
	t.Helper()
	p := &pod{root: image, env: env}
	for _, dir := range []string{"proc", "dev", "run/countersign"} {
		must(t, os.MkdirAll(filepath.Join(p.root, dir), 0o755))
	}
	for _, m := range spec.Containers[0].VolumeMounts {
		files, ok := volumes[m.Name]
		if !ok && m.Name != "run" {
			t.Fatalf("what is in the volume %s?", m.Name)
		}
		p.project(t, m.MountPath, files)
	}
	return p
}

// project writes files as the kubelet does: into a new folder, to which all links are
// switched at once.
func (p *pod) project(t *testing.T, at string, files map[string]string) {
	t.Helper()
	volume := filepath.Join(p.root, at)
	must(t, os.MkdirAll(volume, 0o755))
	fresh, err := os.MkdirTemp(volume, "..2026_")
	must(t, err)
	must(t, os.Chmod(fresh, 0o755)) // #nosec G302 -- the kubelet's
	for name, text := range files {
		path := filepath.Join(fresh, name)
		must(t, os.WriteFile(path, []byte(text), 0o640))
		must(t, os.Chown(path, 0, 1337))
		if link := filepath.Join(volume, name); os.Symlink(filepath.Join("..data", name), link) != nil {
			_, err := os.Readlink(link)
			must(t, err)
		}
	}
	next := filepath.Join(volume, "..data_tmp")
	must(t, os.Symlink(filepath.Base(fresh), next))
	must(t, os.Rename(next, filepath.Join(volume, "..data")))
}

// file is the kubelet's own, as /etc/hosts.
func (p *pod) file(t *testing.T, at, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(filepath.Join(p.root, at)), 0o755))
	must(t, os.WriteFile(filepath.Join(p.root, at), []byte(text), 0o644)) // #nosec G306 -- the kubelet's
}

func (p *pod) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "sh", "-euc", inPod, p.root}, args...)...)
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, p.env...)
	return cmd
}

// container is a program that runs in a pod, until it is ended.
type container struct{ *proctest.Process }

func (p *pod) run(t *testing.T, args ...string) *container {
	t.Helper()
	var c *container
	t.Cleanup(func() { c.end(t) }) // when it has ended
	c = &container{proctest.Start(t, p.command(context.WithoutCancel(t.Context()), args...))}
	return c
}

// end is what the kubelet does; it may be called again.
func (c *container) end(t *testing.T) {
	t.Helper()
	if !c.Stop(syscall.SIGTERM) || c.Ended().ExitCode() != 0 {
		t.Errorf("%s ended with %d:\n%s", c, c.Ended().ExitCode(), c.Log)
	}
}

// ready asks as the kubelet does.
func (c *container) ready(t *testing.T, probes string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Second}
	soon(t, "a ready pod", func() error {
		if c.Ended() != nil {
			t.Fatal("it has ended")
		}
		answer, err := client.Get("http://" + probes + "/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		why, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = errors.New(string(why))
		}
		return err
	})
}

// deployment is the base's, and the configuration that goes with it, by its file's name.
func deployment(t *testing.T, text, file string) (spec corev1.PodSpec, config string) {
	t.Helper()
	var d appsv1.Deployment
	must(t, json.Unmarshal(objects(t, text, "Deployment")[0].text, &d))
	var c corev1.ConfigMap
	must(t, json.Unmarshal(objects(t, text, "ConfigMap")[0].text, &c))
	return d.Spec.Template.Spec, c.Data[file]
}

// elsewhere is a configuration with other addresses, as this machine has no network for
// each pod.
func elsewhere(t *testing.T, config string, addresses map[string]string) string {
	t.Helper()
	for from, to := range addresses {
		if strings.Count(config, from) != 1 {
			t.Fatalf("the configuration has not one %s:\n%s", from, config)
		}
		config = strings.ReplaceAll(config, from, to)
	}
	return config
}
