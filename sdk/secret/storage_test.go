package secret_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestRestartWithAbsentCAServesStoredSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, nil)
		first, roots := k.held("default"), k.held("ROOTCA")
		after(time.Minute)
		k.ca.set(true)
		k.restart(nil)

		item := k.peek("default")
		if item.Version != first.Version || string(item.Key) != string(first.Key) || !item.RenewAt.Equal(first.RenewAt) || !item.Issued.Equal(first.Issued) ||
			item.RootFingerprint != first.RootFingerprint || item.Authority != "test" {
			t.Errorf("got %v, want %v", item, first)
		}
		if got := k.peek("ROOTCA"); got.Version != roots.Version {
			t.Errorf("got %v, want %v", got, roots)
		}
		s := k.status("default")
		if !s.Restored || !s.Held || k.count(secret.Restored, "") != 1 || k.count(secret.StateFailed, "load") != 0 {
			t.Errorf("status %+v, events %v", s, k.events)
		}
		if !k.status("ROOTCA").Roots[0].Restored {
			t.Error("the status does not say that the root is from the last run")
		}

		k.ca.set(false)
		after(5 * time.Minute)
		if k.status("ROOTCA").Roots[0].Restored || !k.status("ROOTCA").Roots[0].KeptUntil.IsZero() {
			t.Error("the CA has told its root, and it counts as one of the last run")
		}
		k.untilRenewal(-time.Second)
		k.requests(1) // that of the first run
		after(2 * time.Second)
		k.requests(2)
		if k.status("default").Restored {
			t.Error("the successor counts as one of the last run")
		}
	})
}

func TestRootDroppedMeanwhileStaysForOverlap(t *testing.T) {
	none := time.Duration(0)
	for name, c := range map[string]struct {
		overlap  *time.Duration
		requests int
		roots    int
	}{
		"by default until the certificate ends": {nil, 1, 2},
		"not at all":                            {&none, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				overlap := func(config *secret.Config) { config.Authorities[0].RootOverlap = c.overlap }
				k := newKept(t, overlap)
				first := k.held("default")
				k.ca.set(true)
				k.Close()
				k.ca.Rotate()
				k.restart(overlap)
				if k.peek("default").Version != first.Version || len(k.status("ROOTCA").Roots) != 1 {
					t.Fatal("want the certificate and root of the last run")
				}
				k.ca.set(false)
				after(time.Minute)
				k.requests(c.requests)
				if got := k.status("ROOTCA").Roots; len(got) != c.roots {
					t.Errorf("got the roots %v, want %d", got, c.roots)
				}
				after(first.NotAfter.Sub(k.now()) + time.Minute)
				if got := k.status("ROOTCA").Roots; len(got) != 1 {
					t.Errorf("after the certificate's end there are the roots %v", got)
				}
			})
		})
	}
}

func TestRootsOfUnusedAuthorityAreKeptForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		only := func(c *secret.Config) { c.Secrets = c.Secrets[1:] }
		k := newKept(t, only)
		k.held("ROOTCA")
		after(72*time.Hour + time.Minute)
		k.ca.set(true)
		k.Close()
		time.Sleep(11 * time.Hour)
		k.restart(only)
		k.peek("ROOTCA")
		k.Close()
		time.Sleep(24 * time.Hour)
		k.restart(only)
		k.notReady("ROOTCA")
	})
}

func TestClockSetForwardRenewsStoredCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, nil)
		first := k.held("default")
		k.jump.Store(int64(ttl * 3 / 4))
		k.ca.Next(1, catest.Fault{Delay: time.Millisecond}) // what is restored is served before its successor comes
		k.restart(nil)
		if k.peek("default").Version != first.Version {
			t.Error("want what is still valid at once")
		}
		after(time.Second)
		k.requests(2)
	})
}

func TestChangedRatioRedrawsRotationFromIssue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, nil)
		first := k.held("default")
		k.restart(func(c *secret.Config) { c.Secrets[0].RenewRatio = 0.9 })
		if got := k.peek("default"); !got.RenewAt.Before(first.RenewAt) || got.RenewAt.Before(first.Issued) {
			t.Errorf("the rotation is at %s", got.RenewAt)
		}
	})
}

func TestRestartRereadsTokenWithoutNewCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		token := func(c *secret.Config) {
			c.Authorities[0].Token = func(context.Context) (ca.Bearer, error) {
				reads++
				return ca.Bearer{Token: "t", Expiry: time.Now().Add(10 * ttl)}, nil
			}
		}
		k := newKept(t, token)
		k.held("default")
		k.restart(token)
		after(time.Minute)
		k.requests(1)
		if reads != 2 || k.status("default").TokenExpiry.IsZero() {
			t.Errorf("the token was read %d times", reads)
		}
	})
}

func TestRootsFromRepliesAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pins *pki.Bundle
		alone := func(c *secret.Config) {
			pins = c.Authorities[0].Client.(*outage).Bundle()
			c.Authorities[0].Client, c.Authorities[0].PinnedRoots = signOnly{c.Authorities[0].Client}, pins
		}
		k := newKept(t, alone)
		k.held("default")
		k.ca.set(true)
		k.restart(alone)
		k.peek("default")
		k.peek("ROOTCA")
		after(time.Second)
		if root := k.status("ROOTCA").Roots[0]; root.Restored || !root.KeptUntil.IsZero() {
			t.Error("the pinned roots are the authority's own word, and count as those of the last run")
		}
	})
}

func TestFailingStorageDelaysNothingAndIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, func(c *secret.Config) { c.Storage.(*memory).fault = errors.New("no space left") })
		first := k.held("default")
		if k.count(secret.StateFailed, "store") == 0 || len(k.store.names()) != 0 {
			t.Errorf("events %v", k.events)
		}
		k.store.setFault(nil)
		k.untilRenewal(time.Second)
		if k.held("default").Version == first.Version {
			t.Fatal("there is no rotation")
		}
		if len(k.store.names()) != 2 {
			t.Errorf("kept are %q", k.store.names())
		}
	})
}

func TestHangingStorageDelaysNothingForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		begun := time.Now()
		k := newKept(t, func(c *secret.Config) { c.Storage.(*memory).hang = hang })
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("New took %s", took)
		}
		first := k.held("default")
		k.untilRenewal(time.Second)
		if k.held("default").Version == first.Version {
			t.Error("there is no rotation")
		}
		begun = time.Now()
		k.Close()
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("Close took %s", took)
		}
		close(hang)
	})
}

func TestReleasedSecretIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, nil)
		k.held("default")
		if err := k.Release(agent, "default"); err != nil {
			t.Fatal(err)
		}
		after(time.Second)
		if got := k.store.names(); len(got) != 1 || got[0] != "roots test" {
			t.Errorf("kept are %q", got)
		}
		if err := k.Reload(nil, nil); err != nil {
			t.Fatal(err)
		}
		after(time.Second)
		if got := k.store.names(); len(got) != 0 {
			t.Errorf("kept are %q", got)
		}
	})
}

func TestRotationRightBeforeCloseIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, func(c *secret.Config) { c.Storage.(*memory).slow = 2 * time.Second })
		k.untilRenewal(time.Millisecond)
		second := k.held("default")
		k.ca.set(true)
		k.restart(nil)
		if k.peek("default").Version != second.Version {
			t.Error("the last certificate was not kept")
		}
	})
}

func TestFallbackCertificateIsStoredWithItsAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := catest.NewCA(catest.Options{})
		two := func(c *secret.Config) {
			c.Authorities = append(c.Authorities, secret.Authority{Name: "other", Client: other})
			c.Secrets[0].Authorities = []string{"test", "other"}
			c.Secrets[1].Authorities = []string{"test", "other"}
			c.Secrets[0].FallbackAfter = time.Second
		}
		k := newKept(t, func(c *secret.Config) {
			c.Authorities[0].Client.(*outage).away = true
			two(c)
		})
		after(time.Minute)
		first := k.held("default")
		k.restart(two)
		if got := k.peek("default"); got.Version != first.Version || got.Authority != "other" {
			t.Errorf("got %v of %q", got, got.Authority)
		}
	})
}
