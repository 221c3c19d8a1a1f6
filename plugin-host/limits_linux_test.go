package pluginhost_test

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// ownUser is the uid of this test's providers alone.
const ownUser = "64017"

// said runs the provider with these settings, and returns its output.
func said(t *testing.T, p ca.Client) string {
	t.Helper()
	_, err := p.CSRSign(t.Context(), request(t))
	if err == nil {
		t.Fatal("it signed")
	}
	return err.Error()
}

func TestLimitsApplyAndHostSurvives(t *testing.T) {
	t.Parallel()
	for does, c := range map[string]struct {
		limits pluginhost.Limits
		user   string
		want   string
	}{
		"descriptors": {pluginhost.Limits{Descriptors: 64}, "", "too many open files"},
		"memory":      {pluginhost.Limits{Memory: 384 << 20}, "", "unavailable"},
		"processes":   {pluginhost.Limits{Processes: 100}, ownUser, "temporarily unavailable"},
	} {
		t.Run(does, func(t *testing.T) {
			h := newHost(t, "good")
			entry := pluginhost.Entry{Name: "good", Limits: c.limits, User: c.user, Settings: map[string]any{"fail": does}}
			if c.user != "" {
				h.forAll(t)
			}
			p := h.open(t, entry)
			got := said(t, p)
			if c.user != "" && !mayLimitOthers(t) { // then a warning is logged
				got += h.rec.log()
				c.want = `limits="processes: prlimit: operation not permitted`
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			// The same process, or the next one, signs for the next valid request.
			entry.Settings = nil
			must(t, p.Reload(t.Context(), entry))
			sign(t, p)
		})
	}
}

// mayLimitOthers reports whether this process has CAP_SYS_RESOURCE.
func mayLimitOthers(t *testing.T) bool {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, after, _ := strings.Cut(string(status), "CapEff:\t")
	caps, err := strconv.ParseUint(after[:16], 16, 64)
	must(t, err)
	return caps&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// forAll lets other users reach the binaries and the runtime folder.
func (h *host) forAll(t *testing.T) {
	t.Helper()
	must(t, os.Chmod(filepath.Dir(h.dir), 0o755))
	must(t, os.Chmod(h.runtime, 0o755))
}

func TestProviderRunsAsItsOwnUser(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"good", "stock"} { // with a channel, and with a socket of its own
		t.Run(name, func(t *testing.T) {
			h := newHost(t, name)
			h.forAll(t)
			h.opts.Groups = &pluginhost.ProcessGroups{}
			p := h.open(t, pluginhost.Entry{Name: name, User: ownUser, Settings: map[string]any{"fail": "user"}})
			if got, want := said(t, p), "uid "+ownUser+", gid "+ownUser+", groups [] <nil>, home /"; !strings.HasSuffix(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if !h.opts.Groups.ContainsUser(64017) || h.opts.Groups.ContainsUser(0) {
				t.Error("the policy does not know the user")
			}
		})
	}
}

func TestUserOfProviderThatNeverRanIsServed(t *testing.T) {
	h := newHost(t, "good")
	h.forAll(t)
	h.opts.Groups = &pluginhost.ProcessGroups{}
	p, err := pluginhost.Find(h.opts, pluginhost.Entry{Name: "good", User: ownUser})
	must(t, err)
	must(t, p.Close())
	if h.opts.Groups.ContainsUser(64017) {
		t.Error("the policy refuses a user that no provider has run as")
	}
}

func TestInvalidUserIsOneSentence(t *testing.T) {
	h := newHost(t, "good")
	for user, want := range map[string]string{
		"root": "user is root", "0": "user is root", "no such user": "use the name or number of a user", "-1": "use the name or number",
		"99999999999": "use the name or number",
	} {
		_, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: "good", User: user})
		if _, ok := errors.AsType[*pluginhost.EntryError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", user, err, want)
		}
	}
}

func TestUnusableLimitsAreRefused(t *testing.T) {
	h := newHost(t, "good")
	for want, limits := range map[string]pluginhost.Limits{
		"limits.memory is 1:": {Memory: 1}, "limits.memory is -1:": {Memory: -1}, "limits.descriptors is 3:": {Descriptors: 3},
		"limits.processes is 1:": {Processes: 1}, "limits.cpu is 0.001:": {CPU: 0.001}, "limits.cpu is NaN:": {CPU: math.NaN()},
	} {
		_, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: "good", Limits: limits})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Where a full disk leaves no room for anything, what is held and what runs goes on.
func TestDiskFillingProviderStopsNothingElse(t *testing.T) {
	h := newHost(t, "good")
	disk := filepath.Join(filepath.Dir(h.dir), "disk")
	must(t, os.Mkdir(disk, 0o700))
	must(t, syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"))
	t.Cleanup(func() { must(t, syscall.Unmount(disk, 0)) })
	h.opts.RuntimeDir = disk
	entry := pluginhost.Entry{Name: "good", Settings: map[string]any{"fail": "fill " + filepath.Join(disk, "full")}}
	p := h.open(t, entry)
	if got := said(t, p); !strings.Contains(got, "no space left") {
		t.Error(got)
	}
	must(t, syscall.Kill(p.Status().PID, syscall.SIGKILL))
	h.rec.awaitState(t, pluginhost.Ready, 2) // its private folder needs no room
	entry.Settings = nil
	must(t, p.Reload(t.Context(), entry))
	sign(t, p)
	must(t, p.Close())
	out, err := exec.Command("ls", disk).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "full" {
		t.Errorf("left: %s %v", out, err)
	}
}
