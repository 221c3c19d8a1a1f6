package pluginhost_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/debugger"
)

// byHand starts the provider as its author does, and returns how to end it.
func byHand(t *testing.T, h *host, d *debugger.Debugger) (end func()) {
	t.Helper()
	cmd := exec.Command(filepath.Join(h.dir, "countersign-provider-good"))
	cmd.Env = append(os.Environ(), d.Environment()...)
	must(t, cmd.Start())
	over := false
	end = func() {
		if !over {
			over = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(end)
	return end
}

func TestAgentAttachesToDebuggedProviderRepeatedly(t *testing.T) {
	h := newHost(t, "good")
	d, err := debugger.New(h.runtime, h.opts.Log)
	must(t, err)
	defer d.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	end := byHand(t, h, d)
	m, err := d.Await(ctx)
	if err != nil || m.Name != "good" {
		t.Fatalf("%+v, %v", m, err)
	}
	h.opts.Dev = false
	p := h.open(t, pluginhost.Entry{Name: "good", Attach: d.Socket()})
	sign(t, p)
	if s := p.Status(); s.Authentication != pluginhost.Attached || s.State != pluginhost.Ready || s.Metadata.Name != "good" || len(s.Metadata.Abilities) == 0 {
		t.Errorf("status %+v", s)
	}
	end()
	byHand(t, h, d)
	if _, err := d.Await(ctx); err != nil {
		t.Fatal(err)
	}
	sign(t, p) // a new process without settings gets them
	if log := h.rec.log(); !strings.Contains(log, "neither pinned nor confined") {
		t.Errorf("no warning in %s", log)
	}
}

func TestUntrustedPathIsNotAttached(t *testing.T) {
	loose := t.TempDir() // mode 0755
	must(t, os.Chmod(loose, 0o755))
	listener, err := net.Listen("unix", filepath.Join(loose, "s"))
	must(t, err)
	defer listener.Close()
	must(t, os.WriteFile(filepath.Join(loose, "file"), nil, 0o600))
	for path, want := range map[string]string{
		filepath.Join(loose, "s"):    "its folder is not private (mode 0755); run chmod 0700",
		filepath.Join(loose, "file"): "not a socket",
		filepath.Join(loose, "none"): "start countersign provider debug, which prints the socket",
	} {
		_, err := pluginhost.Find(pluginhost.Options{}, pluginhost.Entry{Name: "good", Attach: path})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestDebuggerRejectsOtherUsers(t *testing.T) {
	h := newHost(t, "good")
	d, err := debugger.New(h.runtime, h.opts.Log)
	must(t, err)
	defer d.Close()
	info, err := os.Stat(d.Folder())
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info.Mode(), err)
	}
	for _, v := range d.Environment() {
		if strings.Contains(v, "PRIVATE KEY") {
			t.Error("a key is in the environment")
		}
	}
	if os.Geteuid() != 0 {
		return // only root can become another user
	}
	must(t, os.Chmod(d.Folder(), 0o755))
	must(t, os.Chmod(filepath.Dir(d.Folder()), 0o755))
	must(t, os.Chmod(filepath.Dir(filepath.Dir(d.Folder())), 0o755))
	must(t, os.Chmod(d.Socket(), 0o777))
	asNobody(t, d.Socket())
}
