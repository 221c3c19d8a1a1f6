package pluginhost_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

// change makes the installed binary another one that does the same.
func change(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, "countersign-provider-"+name)
	self, err := os.Executable()
	must(t, err)
	copyFile(t, self, path+".new", "another version")
	must(t, os.Rename(path+".new", path))
}

// load makes calls until it is stopped, and returns how many there were and the
// errors among them.
func load(t *testing.T, p *pluginhost.Provider, callers int) (stop func() (calls int, failed []error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var all sync.WaitGroup
	calls, failed := 0, []error(nil)
	req := request(t)
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := p.CSRSign(t.Context(), req)
				mu.Lock()
				if calls++; err != nil {
					failed = append(failed, err)
				}
				mu.Unlock()
			}
		})
	}
	return func() (int, []error) {
		cancel()
		all.Wait()
		return calls, failed
	}
}

func TestReloadUnderLoadFailsNoCall(t *testing.T) {
	h := newHost(t, "good")
	entry := pluginhost.Entry{Name: "good"}
	p := h.open(t, entry)
	was := p.Status()
	stop := load(t, p, 8)

	change(t, h.dir, "good")
	must(t, p.Reload(t.Context(), entry))
	now := p.Status()
	if now.SHA256 == was.SHA256 || now.PID == was.PID || now.Reloads != 1 || now.Restarts != 0 {
		t.Errorf("was %+v, is %+v", was, now)
	}
	for range 3 {
		entry.Settings = map[string]any{"fail": "never"}
		must(t, p.Reload(t.Context(), entry))
		entry.Settings = nil
		must(t, p.Reload(t.Context(), entry))
	}
	awaitGone(t, was.PID)

	calls, failed := stop()
	if len(failed) > 0 {
		t.Errorf("%d of %d calls failed: %v", len(failed), calls, failed[0])
	}
	t.Logf("%d calls, 7 swaps", calls)
}

func TestBadReloadUnderLoadKeepsOldProcess(t *testing.T) {
	h := newHost(t, "good", "exits", "other")
	entry := pluginhost.Entry{Name: "good"}
	p := h.open(t, entry)
	was := p.Status()
	stop := load(t, p, 4)
	for want, bad := range map[string]pluginhost.Entry{
		"fail is \"settings\"": {Name: "good", Settings: map[string]any{"fail": "settings"}},
		"exit status 3":        {Name: "good", Provider: "exits"},
		"calls itself":         {Name: "good", Provider: "other"},
		"SHA-256":              {Name: "good", SHA256: strings.Repeat("0", 64)},
		"cannot rename it":     {Name: "better"},
		"is not installed":     {Name: "good", Provider: "nowhere"},
	} {
		if err := p.Reload(t.Context(), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q", err, want)
		}
	}
	if now := p.Status(); now.PID != was.PID || now.State != pluginhost.Ready || now.LastReload == "" {
		t.Errorf("was %+v, is %+v", was, now)
	}
	if calls, failed := stop(); len(failed) > 0 {
		t.Errorf("%d of %d calls failed: %v", len(failed), calls, failed[0])
	}
}

func TestNoopReloadWarnsOfNothing(t *testing.T) {
	h := newHost(t, "good")
	p := h.open(t, pluginhost.Entry{Name: "good"})
	for range 3 {
		must(t, p.Reload(t.Context(), pluginhost.Entry{Name: "good"}))
	}
	if n := strings.Count(h.rec.log(), "without a pin"); n != 1 {
		t.Errorf("%d warnings for one start", n)
	}
}

func TestCancelledReloadLeavesNoProcess(t *testing.T) {
	h := newHost(t, "good", "silent")
	p := h.open(t, pluginhost.Entry{Name: "good"})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := p.Reload(ctx, pluginhost.Entry{Name: "good", Provider: "silent"}); err == nil {
		t.Error("it was taken")
	}
	sign(t, p)
	must(t, p.Close()) // returns when nothing is left
	left, err := filepath.Glob(filepath.Join(h.runtime, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}
