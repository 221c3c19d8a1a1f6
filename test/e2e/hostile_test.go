//go:build e2e

package e2e

import (
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// What an agent may cost while one of its providers is hostile.
const (
	mostMemory = 60 << 10 // kB, at its peak
	// Thirty replies of 4 MiB at once would be 360 MB; the budget for them is 64 MiB at most.
	mostOfReplies = mostMemory + 100<<10
	mostCPU       = 0.05             // of a core, on average, once there are enough seconds for the agent's own start
	mostLog       = 1 << 20          // bytes a minute
	observed      = 12 * time.Second // at least
)

// The agent of the README, whose provider is "file", with a hostile one beside it.
func TestHostileProviderAffectsNoOther(t *testing.T) {
	t.Parallel()
	for _, way := range []string{
		"exits", "silent", "prints forever", "writes no line", "floods the log", "says two lines", "unknown version", "foreign socket",
		"hangs up", "speaks no gRPC", "leaves children", "another name", "10 MB metadata", "many abilities", "hangs in Metadata",
		"hangs in Validate", "hangs in Configure", "refuses", "away", "dies in Configure", "dies each second", "stops itself",
		"hangs in CSRSign", "signs nothing", "boasts", "denies", "forgets", "storms of roots", "floods of roots", "replies of 4 MiB", "headers of 15 MiB",
		"floods its output", "floods of PING", "floods of SETTINGS",
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			a := prepareAgent(t, agentConfig{selfSigned: true})
			a.addHostile(t, way)
			a.status = unixHTTP(t, a.statusSocket())
			begun := time.Now()
			a.start(t)
			w := startWorkload(t, a.socket, "default")
			mostMemory, mostCPU := mostOf(way)
			took, share := time.Duration(0), 0.0
			for took < observed || share > mostCPU && took < patience {
				held := w.certificate()
				w.await(t, "its next certificate", func() bool { return pki.Fingerprint(w.pair.Leaf) != pki.Fingerprint(held.Leaf) })
				took = time.Since(begun)
				share = a.cpu(t).Seconds() / took.Seconds()
			}
			if w.streams != 1 {
				t.Errorf("the stream broke: there were %d", w.streams)
			}
			if kB := a.peak(t); kB > mostMemory {
				t.Errorf("the agent took %d kB", kB)
			}
			if share > mostCPU {
				t.Errorf("the agent took %.3f of a core", share)
			}
			if rate := float64(len(a.log.String())) * time.Minute.Seconds() / took.Seconds(); rate > mostLog {
				t.Errorf("the agent logged %.0f bytes a minute", rate)
			}
			if way == "floods the log" { // to the end, or this was no test of it
				lines := func(log string) int { return strings.Count(log, "provider output") }
				before := lines(a.log.String())
				a.log.Await(t, patience, "the flood", func(log string) bool { return lines(log) > before })
			}
			t.Logf("%d kB, %.3f of a core, %d bytes in %s", a.peak(t), share, len(a.log.String()), took)
		})
	}
}

// addHostile adds a provider, and a secret that it should sign.
func (a *agent) addHostile(t *testing.T, way string) {
	t.Helper()
	entry := maps.Clone(a.providerEntry(t, agentConfig{}))
	entry["env"] = map[string]string{"HOSTILE": way}
	a.edit(t, func(config map[string]any) {
		config["providers"] = append(config["providers"].([]any), entry)
		secrets := config["secrets"].([]any)
		for _, s := range secrets {
			s.(map[string]any)["provider"] = "file"
		}
		if way == "replies of 4 MiB" {
			for i := range 30 {
				name := "theirs" + strconv.Itoa(i)
				secrets = append(secrets, map[string]any{"name": name, "spiffe_id": "spiffe://e2e.test/" + name, "provider": "moody"})
			}
		}
		config["secrets"] = append(secrets,
			map[string]any{"name": "theirs", "spiffe_id": "spiffe://e2e.test/theirs", "provider": "moody"},
			map[string]any{"name": "fallback", "spiffe_id": "spiffe://e2e.test/fallback", "providers": []string{"file", "moody"}})
		config["default_provider"] = "file"
	})
}

// mostOf returns what an agent may cost beside such a provider. To receive a hundred replies of 4
// MiB takes a second. A flood of log lines is read for as long as it lasts, at 0.03 of a core, and at
// twice that where other programs take the caches.
func mostOf(way string) (kB int, ofCore float64) {
	switch way {
	case "replies of 4 MiB":
		return mostOfReplies, 4 * mostCPU
	case "floods the log":
		return mostMemory, 2 * mostCPU
	}
	return mostMemory, mostCPU
}

// peak is the most memory that the agent had, in kB.
func (a *agent) peak(t *testing.T) int {
	t.Helper()
	status := readText(t, filepath.Join("/proc", strconv.Itoa(a.PID()), "status"))
	_, rest, _ := strings.Cut(status, "VmHWM:")
	kB, err := strconv.Atoi(strings.Fields(rest)[0])
	mustDo(t, err)
	return kB
}

// cpu is the time that the agent took of all cores.
func (a *agent) cpu(t *testing.T) time.Duration {
	t.Helper()
	stat := readText(t, filepath.Join("/proc", strconv.Itoa(a.PID()), "stat"))
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	var ticks int
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		mustDo(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
