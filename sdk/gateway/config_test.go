package gateway_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func TestInvalidConfigurationIsRefused(t *testing.T) {
	good := gateway.Config{Address: "a:1", NodeID: "n", Secrets: &own{}}
	for name, c := range map[string]struct {
		spoil func(*gateway.Config)
		want  string
	}{
		"no port":    {func(c *gateway.Config) { c.Address = "istiod" }, "host:port"},
		"no host":    {func(c *gateway.Config) { c.Address = ":15012" }, "host:port"},
		"no node":    {func(c *gateway.Config) { c.NodeID = "" }, "NodeID"},
		"no secrets": {func(c *gateway.Config) { c.Secrets = nil }, "Secrets"},
	} {
		cfg := good
		c.spoil(&cfg)
		if _, err := gateway.New(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// Nothing is set but what is required: it is spoken to over TCP.
func TestServiceIsDialledOverTCPByDefault(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	secrets, issuer := &own{items: map[string]*secret.Item{}}, certtest.Root(t)
	chain, key := leafOf(t, issuer, "agent", time.Hour)
	secrets.put(&secret.Item{Name: "default", Kind: secret.KeyPair, Chain: chain, Key: key, NotAfter: time.Now().Add(time.Hour)})
	secrets.put(&secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Roots: issuer.PEM()})
	client, err := gateway.New(gateway.Config{Address: listener.Addr().String(), NodeID: "n", Secrets: secrets})
	if err != nil {
		t.Fatal(err)
	}
	stop := background.Run(client.Run)
	if _, err := client.Watch(secret.Caller{}, web, func(string) {}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first time fails, without a notice
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	stop()
}

func TestTimesAreConfigurable(t *testing.T) {
	inWorld(t, func(_ *world, c *gateway.Config) { c.FirstAnswer, c.Linger = time.Minute, 4*time.Minute }, func(w *world) {
		w.serves(silent)
		w.watch(web)
		time.Sleep(59 * time.Second)
		if n := w.count(gateway.Failed); n != 0 {
			t.Error("the first answer was waited for no minute")
		}
		time.Sleep(2 * time.Second)
		if s := w.client.Status(); s.Failure == nil || !strings.Contains(s.Failure.Text, "no response for 1m0s") {
			t.Errorf("%+v", s.Failure)
		}
	})
	inWorld(t, func(_ *world, c *gateway.Config) { c.Linger = 4 * time.Minute }, func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		_, stop := w.watch(web)
		time.Sleep(time.Minute)
		stop()
		time.Sleep(4*time.Minute - time.Second)
		w.holds(web, good)
		time.Sleep(2 * time.Minute) // a half more, by which it was looked for
		w.answers(web, xds.ErrNotReady)
	})
}

func TestNamesCanBeDroppedAtOnce(t *testing.T) {
	inWorld(t, func(_ *world, c *gateway.Config) { c.Linger = 1 }, func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		_, stop := w.watch(web)
		w.holds(web, good)
		stop()
		time.Sleep(2 * time.Second)
		w.answers(web, xds.ErrNotReady)
	})
}

func TestCloseReportsNoFailureAndLeavesNothing(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		time.Sleep(time.Minute)
		w.end()
		if s := w.client.Status(); !s.Since.IsZero() || s.Failure != nil {
			t.Errorf("nothing was ever asked for, and %+v", s)
		}
	})
	inWorld(t, nil, func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		w.watch(web)
		w.holds(web, good)
		for range 3 { // without a waiter
			w.certificate("another", time.Hour)
		}
		w.end()
		w.holds(web, good)
		if s := w.client.Status(); s.Connected || s.Failure != nil || w.count(gateway.Failed) != 0 || w.own.stopped != 1 {
			t.Errorf("%+v, failed %d times, %d watches ended", s, w.count(gateway.Failed), w.own.stopped)
		}
	})
	inWorld(t, nil, func(w *world) {
		w.stop()
		w.watch(web)
		time.Sleep(time.Hour)
		now, dialled := time.Now(), w.dialled()
		w.end()
		if took := time.Since(now); took != 0 || w.dialled() != dialled {
			t.Errorf("it took %s to end, and it dialled %d times more", took, w.dialled()-dialled)
		}
	})
}
