//go:build e2e

package e2e

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// kinds are the CAs of the mesh, in order of fallback, and what their roots are called.
var kinds = []struct{ provider, root string }{{"aws", "catest root"}, {"vault", "vault root"}, {"file", "file root"}}

// Two agents with the same three CAs of different kinds, each of which goes away in turn, while
// their Envoys talk to each other: each agent's certificates are those of the first CA that is
// there. The peers have had all roots from the start, so no request fails.
func TestRealFallbackAcrossKindsCostsNoRequest(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	aws, vault, dir := startPrivateCA(t), startVault(t), proctest.Folder(t)
	writeCA(t, dir, kinds[2].root)
	settings := map[string]map[string]any{"aws": aws.settings(t), "vault": vault.settings(), "file": {"dir": dir}}
	a, b := startAgentOfKinds(t, settings), startAgentOfKinds(t, settings)
	for _, one := range []*agent{a, b} {
		one.awaitRootsOfKinds(t)
	}

	server := startEnvoy(t, a.socket, stateOfTheWorld, "default").address(t)
	w := startWorkload(t, b.socket, "client")
	direct := startProber(t, w, server, envoyID)
	between := startClientEnvoy(t, clientBootstrap, b.socket, incremental, server)
	through := startProberBy(t, w, func(ctx context.Context) (*x509.Certificate, error) { return nil, askThrough(ctx, between) })
	for _, step := range []struct {
		change func()
		signs  int // of kinds
	}{
		{func() {}, 0},
		{func() { aws.setAway(true) }, 1},
		{func() { vault.setAway(true) }, 2},
		{func() { vault.setAway(false); mustDo(t, os.Rename(dir, dir+".away")) }, 1},
		{func() { aws.setAway(false) }, 0},
	} {
		step.change()
		by := kinds[step.signs]
		direct.awaitSigner(t, by.root)
		for _, one := range []*agent{a, b} {
			one.awaitAuthority(t, by.provider)
		}
		through.awaitHandshakes(t, 10)
	}
	mustDo(t, os.Rename(dir+".away", dir))
	for _, p := range []*prober{direct, through} {
		p.noFailures(t)
	}
	for _, one := range []*agent{a, b} {
		one.log.await(t, "authority unavailable, trying the next one", "authority=aws", "next=vault")
		one.log.await(t, "authority unavailable, trying the next one", "authority=vault", "next=file")
	}
	if n := len(w.bundle().Certificates()); n != len(kinds) {
		t.Errorf("%d roots are left", n)
	}
}

// startAgentOfKinds starts an agent whose secrets may come from all of them.
func startAgentOfKinds(t *testing.T, settings map[string]map[string]any) *agent {
	t.Helper()
	a := prepareAgent(t, agentConfig{})
	names := []string{"countersign"}
	for _, kind := range kinds {
		names = append(names, "countersign-provider-"+kind.provider)
	}
	a.bin = programs.Folder(t, names...)
	a.edit(t, func(c map[string]any) {
		var entries, order []any
		for _, kind := range kinds {
			pin := pinOf(t, filepath.Join(a.bin, "countersign-provider-"+kind.provider))
			entries = append(entries, map[string]any{"name": kind.provider, "sha256": pin, "settings": settings[kind.provider]})
			order = append(order, kind.provider)
		}
		c["providers"] = entries
		for _, secret := range c["secrets"].([]any) {
			secret.(map[string]any)["providers"], secret.(map[string]any)["fallback_after"] = order, "1s"
		}
	})
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	return a
}

// awaitRootsOfKinds waits until the agent serves the roots of all: it relies on them only after
// a while.
func (a *agent) awaitRootsOfKinds(t *testing.T) {
	t.Helper()
	for _, kind := range kinds {
		poll(t, "the root of "+kind.provider, func() bool {
			return a.metric(t, "countersign_authority_roots", `authority="`+kind.provider+`"`) == 1
		})
	}
}

// awaitAuthority waits until /status says that a provider signed both certificates, which
// /metrics has then counted.
func (a *agent) awaitAuthority(t *testing.T, provider string) {
	t.Helper()
	for _, name := range []string{"default", "client"} {
		poll(t, name+" to be signed by "+provider, func() bool { return a.signer(t, name) == provider })
		if a.metric(t, "countersign_secret_rotations_total", `secret="`+name+`"`, `authority="`+provider+`"`) == 0 {
			t.Errorf("/metrics does not say that %s signed %s", provider, name)
		}
	}
}

// signer is who signed a secret, by /status.
func (a *agent) signer(t *testing.T, secret string) string {
	t.Helper()
	var page struct {
		Secrets []struct {
			Name string
			Item struct{ Signer, Authority string }
		}
	}
	if err := json.Unmarshal([]byte(getPage(t, a.status, "/status")), &page); err != nil {
		return ""
	}
	for _, s := range page.Secrets {
		if s.Name == secret {
			return s.Item.Authority
		}
	}
	return ""
}
