package secret_test

import (
	"context"
	"crypto"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// device makes keys that it does not show.
type device struct {
	made atomic.Int64
	away atomic.Bool
}

// inside is a key in a device: crypto/x509 does not know its type.
type inside struct{ crypto.Signer }

func (d *device) NewKey(_ context.Context, _ string, t pki.KeyType) (crypto.Signer, error) {
	if d.away.Load() {
		return nil, ca.Errorf(ca.Unavailable, "the device is away")
	}
	d.made.Add(1)
	key, err := pki.GenerateKey(t)
	return inside{key}, err
}

func TestDeviceKeyIsPassedOnAndNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &device{}
		k := newKept(t, func(c *secret.Config) { c.Keys = d })
		item := k.held("default")
		key, err := item.PrivateKey()
		if _, ok := key.(inside); !ok || err != nil || d.made.Load() != 1 {
			t.Errorf("got a %T, %v, after %d were made", key, err, d.made.Load())
		}
		if text, err := item.KeyPEM(); !errors.Is(err, secret.ErrNotExportable) || len(text)+len(item.Key) != 0 {
			t.Errorf("got %d bytes, %v", len(text), err)
		}
		if got := k.store.names(); len(got) != 1 || got[0] != "roots test" {
			t.Errorf("kept are %q", got)
		}
		k.untilRenewal(time.Second)
		if d.made.Load() != 2 {
			t.Errorf("%d keys were made for two certificates", d.made.Load())
		}
	})
}

func TestStoredKeyIsUnusedOnceDeviceMakesKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, nil)
		first := k.held("default")
		k.restart(func(c *secret.Config) { c.Keys = &device{} })
		if got := k.held("default"); got.Version == first.Version {
			t.Error("the key that was kept is used")
		}
	})
}

func TestAbsentDeviceIsNotAuthoritysFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, other := &device{}, catest.NewCA(catest.Options{})
		d.away.Store(true)
		e := newEngine(t, func(c *secret.Config) {
			c.Keys = d
			c.Authorities = append(c.Authorities, secret.Authority{Name: "other", Client: other})
			c.Secrets[0].Authorities = []string{"test", "other"}
			c.Secrets[0].FallbackAfter = time.Second
		})
		after(2 * time.Minute)
		e.notReady("default")
		if f := e.status("default").Failure; f == nil || f.Reason != "unavailable" {
			t.Errorf("the failure is %+v", f)
		}
		d.away.Store(false)
		after(time.Minute)
		if got := e.held("default"); got.Authority != "test" || len(other.Requests()) != 0 {
			t.Errorf("it is of %q", got.Authority)
		}
	})
}

func TestKeyPairHasKeyAndBundleHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		if key, err := e.held("default").PrivateKey(); err != nil || key == nil {
			t.Errorf("got %T, %v", key, err)
		}
		if _, err := e.held("ROOTCA").PrivateKey(); err == nil {
			t.Error("a bundle has a key")
		}
	})
}
