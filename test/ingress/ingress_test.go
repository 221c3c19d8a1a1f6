//go:build e2e && linux

package ingress_test

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// byDNSName is a service with a CA of its own, whose certificate has a DNS name.
func byDNSName(t *testing.T, c *cluster, agents authority) (*service, map[string]any) {
	t.Helper()
	own, files := newAuthority(t), proctest.Folder(t)
	write(t, filepath.Join(files, "agents.pem"), agents.PEM())
	write(t, filepath.Join(files, "service.pem"), own.PEM())
	s := newService(t, c, map[string]any{
		"certificate":   map[string]any{"dns_names": []string{"discovery.test"}},
		"providers":     fileProvider(own.folder(t)),
		"trust_domains": []any{map[string]any{"name": "cluster.local", "roots_file": filepath.Join(files, "agents.pem")}},
	})
	return s, map[string]any{"address": s.address, "server_name": "discovery.test", "root_file": filepath.Join(files, "service.pem")}
}

// bySPIFFEID is a service as the base deploys it: the CA of the agents signs for it, too,
// and no DNS name.
func bySPIFFEID(t *testing.T, c *cluster, agents authority) (*service, map[string]any) {
	t.Helper()
	s := newService(t, c, map[string]any{
		"certificate":   map[string]any{"spiffe_id": serverID},
		"providers":     fileProvider(agents.folder(t)),
		"trust_domains": []any{map[string]any{"name": "cluster.local", "own_ca": true}},
	})
	return s, map[string]any{"address": s.address, "server_spiffe_id": serverID}
}

func TestRealIngressGatewaySurvivesDiscoveryOutages(t *testing.T) {
	for name, made := range map[string]func(*testing.T, *cluster, authority) (*service, map[string]any){
		"by DNS name": byDNSName, "by SPIFFE ID": bySPIFFEID,
	} {
		t.Run(name, func(t *testing.T) {
			c, agents := newCluster(t), newAuthority(t)
			s, gateway := made(t, c, agents)
			servedWhateverHappens(t, c, s, startAgent(t, fileProvider(agents.folder(t)), gateway))
		})
	}
}

func servedWhateverHappens(t *testing.T, c *cluster, s *service, a *agent) {
	t.Helper()
	shop := newAuthority(t)
	customer, first, second, third := shop.customer(t), shop.site(t), shop.site(t), shop.site(t)
	c.put(first)
	e := startEnvoy(t, a.socket)
	address := e.address(t)
	awaitShown(t, customer, address, first)
	if got := s.streams(t); !slices.Equal(got, []string{"certificate spiffe://cluster.local/ns/istio-ingress/sa/gateway"}) {
		t.Errorf("the service knows %q", got)
	}
	c.put(second)
	awaitShown(t, customer, address, second)

	s.Kill()
	poll(t, "the agent to notice", func() bool { return a.metric(t, "countersign_gateway_connected") == 0 })
	awaitShown(t, customer, address, second)
	e.Stop(syscall.SIGTERM)
	e = startEnvoy(t, a.socket)
	address = e.address(t)
	awaitShown(t, customer, address, second)

	c.put(third) // while the service is away
	s.start(t)
	awaitShown(t, customer, address, third)
	c.put(first)
	awaitShown(t, customer, address, first)

	c.remove()
	a.awaitNames(t, "unknown", 2)
	c.put(second)
	awaitShown(t, customer, address, second)
}

// A yes of the API server counts for 5 minutes, so that the right is taken away while the
// service, which remembers it, is none.
func TestRealIngressGatewayLosesKeyWithRight(t *testing.T) {
	c, agents := newCluster(t), newAuthority(t)
	s, gateway := bySPIFFEID(t, c, agents)
	a := startAgent(t, fileProvider(agents.folder(t)), gateway)
	shop := newAuthority(t)
	customer, site := shop.customer(t), shop.site(t)
	c.put(site)
	e := startEnvoy(t, a.socket)
	awaitShown(t, customer, e.address(t), site)
	s.Kill()
	c.revoke()
	s.start(t)
	a.awaitNames(t, "unknown", 1)
	a.awaitNames(t, "held", 1) // the CA takes no right
	e.Stop(syscall.SIGTERM)
	e = startEnvoy(t, a.socket) // it listens, as it was told that there is no such certificate
	address := e.address(t)
	if _, err := shown(customer, address); err == nil {
		t.Error("an Envoy that starts without the right has the key")
	}
	c.grant()
	poll(t, "the gateway to have the key again", func() bool { _, err := shown(customer, address); return err == nil })
	awaitShown(t, customer, address, site)
}

func TestRealIngressGatewaySendsTokenUntilCertificate(t *testing.T) {
	c, agents := newCluster(t), newAuthority(t)
	s, gateway := byDNSName(t, c, agents)
	files := proctest.Folder(t)
	outage, token := filepath.Join(files, "outage"), filepath.Join(files, "token")
	write(t, outage, nil)
	write(t, token, []byte(c.Token(namespace, account, "istio-ca")))
	gateway["token_file"] = token
	shop := newAuthority(t)
	customer, first, second := shop.customer(t), shop.site(t), shop.site(t)
	c.put(first)
	a := startAgent(t, awayWhile(outage, agents.folder(t)), gateway)
	address := startEnvoy(t, a.socket).address(t)
	awaitShown(t, customer, address, first)
	if got := s.streams(t); !slices.Equal(got, []string{"token-review system:serviceaccount:istio-ingress:gateway"}) {
		t.Errorf("the service knows %q", got)
	}
	must(t, os.Remove(outage))
	poll(t, "the agent's certificate", func() bool { return a.metric(t, `countersign_secret_held{secret="default"}`) == 1 })
	s.Kill()
	c.put(second)
	s.start(t)
	awaitShown(t, customer, address, second)
	if got := s.streams(t); !slices.Equal(got, []string{"certificate spiffe://cluster.local/ns/istio-ingress/sa/gateway"}) {
		t.Errorf("the service knows %q", got)
	}
}

// Whoever has the roots' signature but another name is not told the token, and serves nothing.
func TestRealIngressGatewayRejectsOtherSPIFFEID(t *testing.T) {
	c, agents := newCluster(t), newAuthority(t)
	s, gateway := bySPIFFEID(t, c, agents)
	gateway["server_spiffe_id"] = serverID + "-of-another"
	c.put(newAuthority(t).site(t))
	a := startAgent(t, fileProvider(agents.folder(t)), gateway)
	e := startEnvoy(t, a.socket)
	poll(t, "the agent to refuse it", func() bool {
		return a.metric(t, `countersign_gateway_events_total{event="failed"}`) > 2
	})
	if got, live := s.streams(t), page(e.admin, "/ready"); len(got) != 0 || live == "LIVE\n" {
		t.Errorf("the service knows %q, and Envoy is %q", got, live)
	}
}
