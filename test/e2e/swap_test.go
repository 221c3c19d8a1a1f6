//go:build e2e

package e2e

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Two Envoys of one agent talk to each other while the CA's root is replaced again and
// again, with no overlap at the CA, which tells its roots only with certificates, as istiod
// does. The variable COUNTERSIGN_SWAPS says how often; the default is 8.
func TestAbruptSwapsOfTheRootCostNoHandshakeBetweenEnvoys(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	swaps := 8
	if text := os.Getenv("COUNTERSIGN_SWAPS"); text != "" {
		var err error
		swaps, err = strconv.Atoi(text)
		mustDo(t, err)
	}
	a := prepareAgent(t, agentConfig{})
	a.edit(t, func(c map[string]any) {
		c["providers"].([]any)[0].(map[string]any)["settings"].(map[string]any)["quiet"] = true
	})
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	server := startEnvoy(t, a.socket, stateOfTheWorld, "default").address(t)
	w := startWorkload(t, a.socket, "client")
	probers := []*prober{startProber(t, w, server, envoyID)}
	for _, api := range []apiType{stateOfTheWorld, incremental} {
		address := startClientEnvoy(t, clientBootstrap, a.socket, api, server)
		for range 4 {
			probers = append(probers, startProberBy(t, w, func(ctx context.Context) (*x509.Certificate, error) {
				return nil, askThrough(ctx, address)
			}))
		}
	}
	for i := range swaps {
		name := fmt.Sprintf("root %d", i)
		writeCA(t, a.ca, name)
		probers[0].awaitSigner(t, name)
		w.await(t, "a certificate of "+name, func() bool { return w.pair.Leaf.Issuer.CommonName == name })
		probers[1].awaitHandshakes(t, 5)
	}
	well, failed := 0, 0
	for _, p := range probers {
		p.mu.Lock()
		well, failed = well+p.count, failed+len(p.failures)
		p.mu.Unlock()
	}
	t.Logf("%d swaps: %d handshakes went well, %d failed", swaps, well, failed)
	for _, p := range probers {
		p.noFailures(t)
	}
}
