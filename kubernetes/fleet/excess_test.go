package fleet

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// One that was good until now is let go of in the same way, and comes back.
func TestExcessiveClusterIsDroppedAndRetried(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	east.put(secret("shop", "web", "", map[string][]byte{"tls.crt": []byte("1")}))
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local, func(c *Config) { c.Limits, c.GiveUp = small, patience }).ready(t)
	freed := whenFreed(r.synced(t, "east", east))
	large := secret("shop", "large", "", map[string][]byte{"tls.crt": make([]byte, 60<<10)})
	east.put(large)
	until(t, "it is failed", func() bool {
		return strings.Contains(r.status("east").Fault, "an event of more than 65536 bytes; retrying in ")
	})
	waitFreed(t, freed)
	east.remove(large)
	c := r.synced(t, "east", east)
	if got, err := c.Secret("shop", "web"); err != nil || string(got.Data["tls.crt"]) != "1" {
		t.Errorf("%v, %v", got, err)
	}
	until(t, "it is well", func() bool { got := r.status("east"); return got.State == Synced && got.Fault == "" })
}

// whenFreed returns a channel that is closed when nothing refers to c anymore.
func whenFreed(c *Cluster) <-chan struct{} {
	freed := make(chan struct{})
	runtime.AddCleanup(c, func(freed chan struct{}) { close(freed) }, freed)
	return freed
}

// waitFreed collects garbage until freed is closed: the informers' goroutines return in their own
// time.
func waitFreed(t *testing.T, freed <-chan struct{}) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(patience)
	for {
		runtime.GC()
		select {
		case <-freed:
			return
		case <-again.C:
		case <-deadline:
			t.Fatalf("the cluster is still in memory after %s", patience)
		}
	}
}

func TestRetriesOfExcessAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const giveUp = time.Hour
		var r retries
		for _, row := range []string{"the first row", "one an hour later"} {
			began := time.Now()
			for pause := giveUp / 60; ; pause *= 2 {
				got, again := r.next(giveUp)
				if !again {
					break
				}
				if want := min(pause, giveUp/2); got < want*3/4 || got > want*5/4 {
					t.Fatalf("%s: paused %s, not about %s", row, got, want)
				}
				time.Sleep(got)
			}
			if lasted := time.Since(began); lasted < giveUp || lasted > 2*giveUp {
				t.Errorf("%s was given up after %s", row, lasted)
			}
			time.Sleep(giveUp)
		}
	})
}

func TestAlwaysExcessiveClusterIsGivenUpUntilChange(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := servers(t, "local", "east")
	local, east := s[0], s[1]
	east.answer(hostile(events(added+"}}\n"), list("")))
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	// A try that takes as long begins a new row, so this is long for a busy machine.
	r := start(t, local, func(c *Config) { c.Limits, c.GiveUp = small, 10*time.Second }).ready(t)
	until(t, "given up", func() bool {
		return strings.HasSuffix(r.status("east").Fault, "; given up after 10s until the kubeconfig changes")
	})
	if n := strings.Count(r.logged(), "exceeds its limits"); n < 3 {
		t.Errorf("it was tried %d times", n)
	}
	r.letGo(t, "east", east)
	if _, serves := r.Cluster("east"); serves || !r.Known("east") || r.Known("west") {
		t.Errorf("it serves: %t, known are east: %t, west: %t", serves, r.Known("east"), r.Known("west"))
	}
	east.answer(nil)
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("again")}))
	r.synced(t, "east", east)
	local.put(remotes("r", 0, nil))
	until(t, "it is removed", func() bool { return !r.Known("east") })
}

// A kubeconfig that leads to too much costs nothing of what an earlier one reaches.
func TestServingClusterStaysWhenNextIsExcessive(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := servers(t, "local", "east", "next")
	local, east, next := s[0], s[1], s[2]
	next.answer(hostile(events(added+"}}\n"), list("")))
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local, func(c *Config) { c.Limits = small }).ready(t)
	before := r.synced(t, "east", east)
	local.put(remotes("r", 0, map[string][]byte{"east": next.kubeconfig("")}))
	until(t, "the next is failed", func() bool { return r.status("east").State == Failed })
	if now, ok := r.Cluster("east"); !ok || now != before || !r.status("east").Serving {
		t.Errorf("%+v", r.status("east"))
	}
	// Now the one before, too. There is nothing to try again: the kubeconfig leads elsewhere.
	east.answer(func(w http.ResponseWriter, _ *http.Request) { refuseAtLength(w) })
	until(t, "none serves", func() bool { _, known := r.Cluster("east"); return !known })
	if got := r.status("east"); !strings.Contains(got.Fault, "more than 100 secrets") || got.Serving {
		t.Errorf("%+v", got)
	}
	east.answer(nil)
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r.synced(t, "east", east)
}

func TestNextKubeconfigServesWhenFirstIsExcessive(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := servers(t, "local", "east", "next")
	local, east, next := s[0], s[1], s[2]
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local, func(c *Config) { c.Limits = small }).ready(t)
	r.synced(t, "east", east)
	next.fail(-2)
	local.put(remotes("r", 0, map[string][]byte{"east": next.kubeconfig("")}))
	until(t, "the next is tried", func() bool { return r.status("east").State == Connecting })
	east.answer(func(w http.ResponseWriter, _ *http.Request) { refuseAtLength(w) })
	until(t, "the next is handed out", func() bool { return r.status("east").Server == next.URL })
	if got := r.status("east"); got.State != Connecting || got.Serving {
		t.Errorf("%+v", got)
	}
	next.fail(0)
	r.synced(t, "east", next)
}

// What has changed, gone, or was read anew does not count as what it was.
func TestOnlyPresentObjectsAreCounted(t *testing.T) {
	l := newBudget(Limits{Bytes: 4 * objectSize, Objects: 2, Response: 1}).ledger()
	put := func(name string, size int) error {
		return l.put(secret("shop", name, "", map[string][]byte{"cert": make([]byte, size)}))
	}
	for range 5 {
		for _, name := range []string{"a", "b", "a"} {
			if err := put(name, 100); err != nil {
				t.Fatal(err)
			}
		}
		l.drop(secret("shop", "a", "", nil))
		l.drop(secret("shop", "nobody", "", nil))
		if err := put("c", 100); err != nil {
			t.Fatal(err)
		}
		l.clear()
	}
	if l.bytes != 0 || put("a", objectSize) != nil || put("b", objectSize) == nil || put("b", 0) != nil || put("c", 0) == nil {
		t.Errorf("%d bytes, %v", l.bytes, l.sizes)
	}
}
