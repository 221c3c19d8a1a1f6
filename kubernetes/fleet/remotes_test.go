package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/authn"
)

func TestRemoteFollowsItsSecret(t *testing.T) {
	s := servers(t, "local", "east", "moved")
	local, east, moved := s[0], s[1], s[2]
	east.put(secret("shop", "web", "", map[string][]byte{"tls.crt": []byte("east")}))
	moved.put(secret("shop", "web", "", map[string][]byte{"tls.crt": []byte("moved")}))
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local).ready(t)
	c := r.synced(t, "east", east)
	if got, err := c.Secret("shop", "web"); err != nil || string(got.Data["tls.crt"]) != "east" || c.Local() || c.ID() != "east" {
		t.Errorf("%v, %v", got, err)
	}
	local.put(remotes("r", 0, map[string][]byte{"east": moved.kubeconfig("")}))
	c = r.synced(t, "east", moved)
	if got, err := c.Secret("shop", "web"); err != nil || string(got.Data["tls.crt"]) != "moved" {
		t.Errorf("%v, %v", got, err)
	}
	until(t, "the former server is left alone", func() bool { return east.Watches() == 0 })
	local.put(remotes("r", 0, map[string][]byte{"other": moved.kubeconfig("")}))
	r.synced(t, "other", moved)
	until(t, "the key that was taken out is gone", func() bool { _, known := r.Cluster("east"); return !known })
	local.remove(remotes("r", 0, nil))
	r.gone(t, "other", moved)
	if r.told(Event{Cluster: "east"}) < 4 { // added, synced, exchanged, removed
		t.Errorf("events: %v", r.events)
	}
}

func TestSecretOfOtherNamespaceHoldsNoClusters(t *testing.T) {
	s := servers(t, "local", "east")
	s[0].put(remotes("r", 0, map[string][]byte{"east": s[1].kubeconfig("")}))
	elsewhere := remotes("r", 0, map[string][]byte{"foreign": s[1].kubeconfig("")})
	elsewhere.Namespace = "shop"
	s[0].put(elsewhere)
	r := start(t, s[0]).ready(t)
	r.synced(t, "east", s[1])
	if _, known := r.Cluster("foreign"); known {
		t.Error("a Secret of another namespace makes a cluster")
	}
}

func TestSameBytesChangeNothing(t *testing.T) {
	s := servers(t, "local", "east")
	s[0].put(remotes("r", 0, map[string][]byte{"east": s[1].kubeconfig("")}))
	r := start(t, s[0]).ready(t)
	before := r.synced(t, "east", s[1])
	again := remotes("r", 0, map[string][]byte{"east": s[1].kubeconfig(""), "mark": []byte("malformed")})
	s[0].put(again)
	until(t, "the change is seen", func() bool { return r.status("mark").State == Failed })
	if after, _ := r.Cluster("east"); after != before {
		t.Error("the cluster was exchanged")
	}
}

func TestFirstSecretKeepsDuplicateIDUntilRemoved(t *testing.T) {
	s := servers(t, "local", "east", "evil")
	local, east, evil := s[0], s[1], s[2]
	local.put(remotes("a-later", 10, map[string][]byte{"east": evil.kubeconfig("")}))
	local.put(remotes("b-first", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local).ready(t)
	r.synced(t, "east", east)
	if got := r.status("east"); got.Source != "secret istio-system/b-first" || len(got.Refused) != 1 || got.Refused[0] != "secret istio-system/a-later" {
		t.Errorf("%+v", got)
	}
	if len(evil.asked()) != 0 {
		t.Errorf("the second was asked: %q", evil.asked())
	}
	// One that looks older does not get what is held.
	local.put(remotes("0-oldest", -10, map[string][]byte{"east": evil.kubeconfig(""), "mark": []byte("x")}))
	until(t, "the third is seen", func() bool { return r.status("mark").State == Failed && len(r.status("east").Refused) == 2 })
	if got := r.status("east"); got.Source != "secret istio-system/b-first" {
		t.Errorf("%+v", got)
	}
	local.remove(remotes("0-oldest", -10, nil))
	local.remove(remotes("b-first", 0, nil))
	r.synced(t, "east", evil)
	until(t, "the first's watches have ended", func() bool { return east.Watches() == 0 })
	if got := r.status("east"); got.Source != "secret istio-system/a-later" || len(got.Refused) != 0 {
		t.Errorf("%+v", got)
	}
	if n := strings.Count(r.logged(), "duplicate cluster ID"); n != 2 {
		t.Errorf("the log tells of %d refusals: %s", n, r.logged())
	}
}

func TestLocalClusterIDIsRefused(t *testing.T) {
	s := servers(t, "local", "evil")
	s[0].put(remotes("r", 0, map[string][]byte{"local": s[1].kubeconfig("")}))
	r := start(t, s[0]).ready(t)
	got := r.status("local")
	if c, ok := r.Cluster("local"); !ok || c != r.Local() || !got.Local || got.State != Synced || len(got.Refused) != 1 || len(s[1].asked()) != 0 {
		t.Errorf("%+v; asked %q", got, s[1].asked())
	}
	until(t, "the log says who holds the ID", func() bool { return strings.Contains(r.logged(), `holder="the local cluster"`) })
}

func TestMalformedKubeconfigKeepsCluster(t *testing.T) {
	s := servers(t, "local", "east")
	s[0].put(remotes("r", 0, map[string][]byte{"east": s[1].kubeconfig("")}))
	r := start(t, s[0]).ready(t)
	before := r.synced(t, "east", s[1])
	bad := strings.Replace(string(s[1].kubeconfig("")), "token:", "tokenFile: /etc/passwd, token:", 1)
	s[0].put(remotes("r", 0, map[string][]byte{"east": []byte(bad), "new": []byte(bad)}))
	until(t, "it is refused", func() bool { return r.status("east").State == Failed && r.status("new").State == Failed })
	if got := r.status("east"); !got.Serving || !strings.Contains(got.Fault, `"tokenFile"`) {
		t.Errorf("%+v", got)
	}
	s[0].put(remotes("r", 0, map[string][]byte{"east": []byte(bad), "new": []byte(bad), "third": []byte(bad)}))
	refusals := func() int { return strings.Count(r.logged(), "kubeconfig rejected, keeping") }
	until(t, "the change is seen, and then logged", func() bool { return r.status("third").State == Failed && refusals() >= 3 })
	if n := refusals(); n != 3 {
		t.Errorf("three refusals are notified %d times", n)
	}
	if _, known := r.Cluster("new"); known {
		t.Error("a malformed one makes a cluster")
	}
	s[0].put(remotes("r", 0, map[string][]byte{"east": s[1].kubeconfig("")}))
	until(t, "the good one is back", func() bool { return r.status("east").State == Synced })
	if after, _ := r.Cluster("east"); after != before {
		t.Error("the cluster was exchanged for one of the same bytes")
	}
}

func TestUnsyncedRemoteDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	for name, fault := range map[string]int{"it refuses": http.StatusForbidden, "it cuts": -1, "it hangs": -2} {
		s := servers(t, "local", "east")
		s[1].fail(fault)
		s[0].put(remotes("r", 0, map[string][]byte{"east": s[1].kubeconfig("")}))
		patient := start(t, s[0])
		until(t, "it waits for the remote", func() bool { err := patient.Ready(); return err != nil && strings.Contains(err.Error(), `"east"`) })
		if known := slices.ContainsFunc(patient.Status(), func(s Status) bool { return s.ID == "east" }); !patient.Listed() || !known {
			t.Errorf("%s: listed: %t, its status is known: %t", name, patient.Listed(), known)
		}
		patient.end()
		r := start(t, s[0], func(c *Config) { c.SyncWait = time.Nanosecond }).ready(t)
		if c, ok := r.Cluster("east"); !ok || c.Synced() {
			t.Errorf("%s: %v, %v", name, c, ok)
		} else if _, err := c.Secret("shop", "web"); !errors.Is(err, ErrNotSynced) {
			t.Errorf("%s: %v", name, err)
		}
		if fault == http.StatusForbidden {
			until(t, "the refusal is shown", func() bool { return strings.Contains(r.status("east").Fault, "(secret)") })
		}
		if got := r.status("east"); got.Serving || strings.Contains(got.Fault, "credential-of") {
			t.Errorf("%s: %+v", name, got)
		}
		s[1].fail(0)
		r.synced(t, "east", s[1])
		until(t, "the fault is no longer shown", func() bool { got := r.status("east"); return got.State == Synced && got.Fault == "" })
	}
}

// The kubelet replaces the token of a pod in its file.
func TestTokenFromFileIsNotShown(t *testing.T) {
	s := servers(t, "local")[0]
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(s.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	s.fail(http.StatusForbidden)
	r := start(t, s, func(c *Config) { c.Local.BearerToken, c.Local.BearerTokenFile = "the-one-before", path })
	until(t, "the refusal is shown", func() bool { return strings.Contains(r.status("local").Fault, "the test says so") })
	if shown := r.status("local").Fault + r.logged(); !strings.Contains(shown, "(secret)") || strings.Contains(shown, s.Token) {
		t.Errorf("the token is shown: %s", shown)
	}
}

func TestLateClusterDoesNotDelayReadiness(t *testing.T) {
	s := servers(t, "local", "east")
	r := start(t, s[0]).ready(t)
	s[1].fail(-2)
	s[0].put(remotes("r", 0, map[string][]byte{"east": s[1].kubeconfig("")}))
	until(t, "it is known", func() bool { c, ok := r.Cluster("east"); return ok && !c.Synced() })
	if err := r.Ready(); err != nil {
		t.Error(err)
	}
}

func TestSwapHasNoGap(t *testing.T) {
	s := servers(t, "local", "east", "next")
	local, east, next := s[0], s[1], s[2]
	for _, each := range s[1:] {
		each.put(secret("shop", "web", "", map[string][]byte{"tls.crt": []byte(each.URL)}))
	}
	next.fail(-2)
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local).ready(t)
	r.synced(t, "east", east)
	stop, gaps := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(gaps)
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, ok := r.Cluster("east")
			if !ok {
				gaps <- "no cluster"
				return
			}
			if _, err := c.Secret("shop", "web"); err != nil {
				gaps <- err.Error()
				return
			}
		}
	}()
	local.put(remotes("r", 0, map[string][]byte{"east": next.kubeconfig("")}))
	until(t, "the next is tried", func() bool { return r.status("east").State == Connecting })
	if got := r.status("east"); !got.Serving || got.Server != east.URL {
		t.Errorf("%+v", got)
	}
	next.fail(0)
	r.synced(t, "east", next)
	close(stop)
	if gap, was := <-gaps; was {
		t.Errorf("a gap: %s", gap)
	}
	until(t, "the former's watches have ended", func() bool { return east.Watches() == 0 })
}

func TestUnsyncedKubeconfigIsGivenUpUntilChange(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := servers(t, "local", "east", "next")
	local, east, next := s[0], s[1], s[2]
	east.fail(http.StatusServiceUnavailable)
	local.put(remotes("r", 0, map[string][]byte{"east": east.kubeconfig("")}))
	r := start(t, local, func(c *Config) { c.GiveUp = 3 * time.Second }).ready(t)
	until(t, "given up", func() bool { return r.status("east").State == Failed })
	if got := r.status("east"); !strings.Contains(got.Fault, "given up after 3s") || got.Serving {
		t.Errorf("%+v", got)
	}
	if _, known := r.Cluster("east"); known {
		t.Error("it is still handed out")
	}
	east.fail(0)
	r.syncsAgain(t, local, east, "again")
	next.fail(-2)
	local.put(remotes("r", 0, map[string][]byte{"east": next.kubeconfig("")}))
	until(t, "the next is given up", func() bool { return r.status("east").State == Failed })
	if got := r.status("east"); !got.Serving || got.Server != east.URL {
		t.Errorf("the one before does not serve: %+v", got)
	}
	r.syncsAgain(t, local, east, "a third")
}

// syncsAgain changes a kubeconfig until it is synced: on a busy machine one may be given up.
func (r *running) syncsAgain(t *testing.T, local, remote *apiServer, name string) {
	t.Helper()
	for try := range 10 {
		before := r.status("east").Since
		local.put(remotes("r", 0, map[string][]byte{"east": remote.kubeconfig(fmt.Sprint(name, try))}))
		var now Status
		until(t, "it is synced or given up", func() bool {
			now = r.status("east")
			return now.Since != before && (now.State == Synced || now.State == Failed)
		})
		if now.State == Synced {
			return
		}
	}
	t.Errorf("it was never synced: %+v", r.status("east"))
}

// A removed cluster is gone for whoever still has it, too.
func TestRemovedClusterIsUnreachable(t *testing.T) {
	s := servers(t, "local", "east")
	s[0].put(remotes("r", 0, map[string][]byte{"east": s[1].kubeconfig("")}))
	r := start(t, s[0], func(c *Config) { c.ServiceAccounts = "spiffe://td/ns/{namespace}/sa/{service_account}" }).ready(t)
	c := r.synced(t, "east", s[1])
	id, err := c.Authenticator().Authenticate(t.Context(), authn.Credential{Token: "good"})
	if err != nil || id.Cluster != "east" || id.SPIFFEID != "spiffe://td/ns/shop/sa/web" {
		t.Errorf("%+v, %v", id, err)
	}
	if _, err := c.Authenticator().Authenticate(t.Context(), authn.Credential{Token: "bad"}); !errors.Is(err, authn.ErrRefused) {
		t.Errorf("a bad token: %v", err)
	}
	s[0].remove(remotes("r", 0, nil))
	r.gone(t, "east", s[1])
	if _, err := c.Authenticator().Authenticate(t.Context(), authn.Credential{Token: "another"}); !errors.Is(err, authn.ErrUnavailable) {
		t.Errorf("its authenticator: %v", err)
	}
	if _, err := c.Client().Discovery().ServerVersion(); !errors.Is(err, errGone) {
		t.Errorf("its client: %v", err)
	}
}
