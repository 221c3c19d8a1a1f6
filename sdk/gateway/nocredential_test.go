package gateway_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestServiceIsNotCalledWithoutCredential(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, bytes int) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, make([]byte, bytes), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	bearer := func(b ca.Bearer, err error) func(*world, *gateway.Config) {
		return func(w *world, c *gateway.Config) {
			token("", new(int))(w, c)
			c.Token = func(context.Context) (ca.Bearer, error) { return b, err }
		}
	}
	holding := func(item *secret.Item) func(*world, *gateway.Config) {
		return func(w *world, _ *gateway.Config) { w.own.put(item) }
	}
	for name, c := range map[string]struct {
		adjust func(*world, *gateway.Config)
		want   string
	}{
		"no token to be had": {bearer(ca.Bearer{}, errors.New("none today")), "the token for the discovery service: none today"},
		"an empty token":     {bearer(ca.Bearer{}, nil), "the token is empty or has expired"},
		"a token's last":     {bearer(ca.Bearer{Token: "sesame-token", Expiry: time.Date(2000, 1, 1, 0, 0, 0, 999, time.UTC)}, nil), "the token is empty or has expired"},
		"a certificate's":    {func(w *world, _ *gateway.Config) { w.certificate("short", time.Second-1) }, "and there is no token"},
		"no certificates":    {holding(&secret.Item{Name: "default", Kind: secret.KeyPair, Chain: []byte("rubbish")}), `the certificate "default": `},
		"no roots":           {func(w *world, _ *gateway.Config) { delete(w.own.items, "ROOTCA") }, `the roots "ROOTCA" for the discovery service`},
		"malformed roots":    {holding(&secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Roots: []byte("rubbish")}), "the roots for the discovery service: "},
		"no root file":       {func(_ *world, c *gateway.Config) { c.RootFile = filepath.Join(dir, "none") }, "the root file for the discovery service: "},
		"a file too big":     {func(_ *world, c *gateway.Config) { c.RootFile = file("big", 1<<20+1) }, "has more than 1048576 bytes"},
		"a file of nothing":  {func(_ *world, c *gateway.Config) { c.RootFile = file("most", 1<<20) }, "the roots for the discovery service: "},
		"a folder":           {func(_ *world, c *gateway.Config) { c.RootFile = dir }, "is not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, c.adjust, func(w *world) {
				w.watch(web)
				if s := w.client.Status(); s.Failure == nil || !strings.Contains(s.Failure.Text, c.want) || w.dialled() != 0 {
					t.Errorf("dialled %d times, %+v, want %q", w.dialled(), s.Failure, c.want)
				}
			})
		})
	}
}

func TestCertificateWithoutKeyIsNotSent(t *testing.T) {
	inWorld(t, func(w *world, _ *gateway.Config) { w.own.items["default"].Key = []byte("rubbish") }, func(w *world) {
		w.watch(web)
		if s := w.client.Status(); s.Failure == nil || w.dialled() != 0 || strings.Contains(s.Failure.Text, "rubbish") {
			t.Errorf("dialled %d times, %+v", w.dialled(), s.Failure)
		}
	})
}

// The source of a token may be a call to a server that does not answer.
func TestTokenSourceHasADeadline(t *testing.T) {
	inWorld(t, func(w *world, c *gateway.Config) {
		token("", new(int))(w, c)
		c.Token = func(ctx context.Context) (ca.Bearer, error) { <-ctx.Done(); return ca.Bearer{}, ctx.Err() }
	}, func(w *world) {
		w.watch(web)
		time.Sleep(31 * time.Second)
		if s := w.client.Status(); s.Failure == nil {
			t.Error("it is waited for")
		}
	})
}
