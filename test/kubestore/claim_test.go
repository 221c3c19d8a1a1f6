package kubestore_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func (m *machine) claim(t *testing.T, name string) secret.Claim {
	t.Helper()
	c, err := m.Claim(t.Context(), name)
	must(t, err)
	return c
}

func (m *machine) isRefused(t *testing.T, name string) {
	t.Helper()
	if c, err := m.Claim(t.Context(), name); !errors.Is(err, secret.ErrClaimed) {
		t.Errorf("claimed %v, %v", c, err)
	}
}

// wins claims a name every second, as a Set does, and returns how long that took.
func (m *machine) wins(t *testing.T, name string, before secret.Claim) (secret.Claim, time.Duration) {
	t.Helper()
	begun := time.Now()
	for time.Since(begun) < time.Minute {
		c, err := m.Claim(t.Context(), name)
		if err == nil {
			if before.Held() {
				t.Error("two machines hold the claim")
			}
			return c, time.Since(begun)
		}
		if !errors.Is(err, secret.ErrClaimed) {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	t.Fatal("the claim did not run out")
	return nil, 0
}

func leases(t *testing.T, fake *kubetest.Fake) []coordinationv1.Lease {
	t.Helper()
	list, err := fake.Client().CoordinationV1().Leases(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	return list.Items
}

func TestClaimIsExclusiveUntilItIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := kubetest.NewFake()
		a, b := newMachine(t, fake, nil), newMachine(t, fake, nil)
		first := a.claim(t, web)
		a.isRefused(t, web)
		for range 60 {
			b.isRefused(t, web)
			time.Sleep(time.Second)
			if !first.Held() {
				t.Fatal("the claim was lost while it was renewed")
			}
		}
		other := b.claim(t, "b.test")
		must(t, other.Release(t.Context()))
		must(t, first.Release(t.Context()))
		second := b.claim(t, web)
		must(t, second.Release(t.Context()))
		if n := len(leases(t, fake)); n != 0 {
			t.Errorf("%d Leases are left", n)
		}
	})
}

func TestClaimHasTheTimeOfTheAPIServer(t *testing.T) {
	for text, want := range map[string]time.Time{"2026-11-27T10:00:00Z": time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC), "soon": {}} {
		synctest.Test(t, func(t *testing.T) {
			fake := kubetest.NewFake()
			fake.Before = func(c *kubetest.Call) error {
				if meta, _ := c.Object["metadata"].(map[string]any); c.Resource == "leases" && meta != nil {
					meta["creationTimestamp"] = text
				}
				return nil
			}
			claim := newMachine(t, fake, nil).claim(t, web)
			if got := claim.Made(); !got.Equal(want) {
				t.Errorf("made at %s, want %s", got, want)
			}
			must(t, claim.Release(t.Context()))
		})
	}
}

// Times in a Lease are those of another clock.
func TestClaimOfDeadMachineRunsOutByOurOwnClock(t *testing.T) {
	for name, written := range map[string]time.Duration{"as it is": 0, "an hour behind": -time.Hour, "a day ahead": 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			fake := kubetest.NewFake()
			a, b := newMachine(t, fake, nil), newMachine(t, fake, nil)
			fake.Before = func(c *kubetest.Call) error {
				if spec, _ := c.Object["spec"].(map[string]any); c.Resource == "leases" && spec != nil {
					spec["renewTime"] = time.Now().Add(written).UTC().Format("2006-01-02T15:04:05.000000Z07:00")
				}
				return nil
			}
			first := a.claim(t, web)
			time.Sleep(time.Minute)
			a.dead.Store(true)
			second, took := b.wins(t, web, first)
			if took < 12*time.Second || took > 15*time.Second {
				t.Errorf("%s: it took %s", name, took)
			}
			a.dead.Store(false)
			time.Sleep(time.Minute)
			if first.Held() || !second.Held() {
				t.Errorf("%s: held by the first %t, by the second %t", name, first.Held(), second.Held())
			}
			must(t, first.Release(t.Context()))
			a.isRefused(t, web)
			must(t, second.Release(t.Context()))
		})
	}
}

func TestClaimOutlivesShortOutagesOnly(t *testing.T) {
	for lasts, held := range map[time.Duration]bool{5 * time.Second: true, 15 * time.Second: false} {
		for _, hangs := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, kubetest.NewFake(), nil)
				c := m.claim(t, web)
				fails := &m.away
				if hangs {
					fails = &m.dead
				}
				fails.Store(true)
				time.Sleep(lasts)
				fails.Store(false)
				time.Sleep(20 * time.Second)
				if c.Held() != held {
					t.Errorf("held after %s (hangs: %t): %t", lasts, hangs, c.Held())
				}
				must(t, c.Release(t.Context()))
			})
		}
	}
}

// A claim whose answer was lost is our own when it is claimed again.
func TestClaimWithoutAnswerIsOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := kubetest.NewFake()
		m := newMachine(t, fake, nil)
		var once sync.Once
		fake.After = func(c *kubetest.Call) {
			if c.Verb == "create" && c.Resource == "leases" {
				once.Do(func() { time.Sleep(time.Minute) })
			}
		}
		if _, err := m.Claim(t.Context(), web); ca.ReasonFor(err) != ca.Unavailable {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		c := m.claim(t, web)
		must(t, c.Release(t.Context()))
	})
}

// A write that the holder of before has sent arrives when another has taken the claim over.
func TestLateWriteOfEarlierHolderReplacesNothing(t *testing.T) {
	for name, exists := range map[string]bool{"a new name": false, "a renewal": true} {
		synctest.Test(t, func(t *testing.T) {
			fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
			a, b := newMachine(t, fake, nil), newMachine(t, fake, nil)
			day := func(n int) time.Time { return time.Now().Add(time.Duration(n) * 24 * time.Hour) }
			if exists {
				e, r := certificate(web, authority, day(1))
				must(t, b.Store.Store(t.Context(), e, r))
			}
			first := a.claim(t, web)
			_, err := a.Load(t.Context(), web)
			must(t, err)
			late := make(chan struct{})
			fake.Also(func(c *kubetest.Call) error {
				if c.Resource == "secrets" && (c.Verb == "create" || c.Verb == "update") && !a.dead.Load() {
					a.dead.Store(true) // with this call on its way
					<-late
				}
				return nil
			})
			done := make(chan error, 1)
			go func() {
				e, r := certificate(web, authority, day(2))
				done <- a.Store.Store(t.Context(), e, r)
			}()
			synctest.Wait()
			second, _ := b.wins(t, web, first)
			read, err := b.Load(t.Context(), web)
			if err != nil || (len(read.Content) > 0) != exists {
				t.Errorf("%s: the successor reads %d bytes, %v", name, len(read.Content), err)
			}
			close(late)
			if err := <-done; ca.ReasonFor(err) != ca.Unavailable {
				t.Errorf("%s: the late write: %v", name, err)
			}
			synctest.Wait()
			if got, err := b.Load(t.Context(), web); err != nil || string(got.Content) != string(read.Content) {
				t.Errorf("%s: the late write was stored, %v", name, err)
			}
			e, r := certificate(web, authority, day(3))
			must(t, b.Store.Store(t.Context(), e, r))
			if got, err := b.Load(t.Context(), web); err != nil || string(got.Content) != string(r.Content) {
				t.Errorf("%s: the record is another, %v", name, err)
			}
			a.dead.Store(false)
			must(t, first.Release(t.Context()))
			must(t, second.Release(t.Context()))
		})
	}
}

// A write without a claim, such as one of an operator, does not keep the holder from writing.
func TestHolderReplacesWhatWasWrittenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		a, b := newMachine(t, fake, nil), newMachine(t, fake, nil)
		c := a.claim(t, web)
		_, err := a.Load(t.Context(), web)
		must(t, err)
		e, r := certificate(web, authority, time.Now())
		must(t, b.Store.Store(t.Context(), e, r))
		e, r = certificate(web, authority, time.Now())
		must(t, a.Store.Store(t.Context(), e, r))
		must(t, b.Delete(t.Context(), web))
		must(t, a.Store.Store(t.Context(), e, r))
		must(t, c.Release(t.Context()))
	})
}

// Another client, such as one that adds labels, changes a Lease without taking it.
func TestClaimOutlivesChangesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := kubetest.NewFake()
		m := newMachine(t, fake, nil)
		c := m.claim(t, web)
		for range 20 {
			time.Sleep(7 * time.Second)
			labelled := leases(t, fake)[0]
			labelled.TypeMeta, labelled.Namespace = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, namespace
			labelled.Labels["team"] = "shop"
			fake.Put(&labelled)
		}
		if !c.Held() {
			t.Error("the claim is lost")
		}
		must(t, c.Release(t.Context()))
		if n := len(leases(t, fake)); n != 0 {
			t.Errorf("%d Leases are left", n)
		}
	})
}

// A claim whose Lease another client has deleted, or given away, is lost.
func TestClaimIsLostWithItsLease(t *testing.T) {
	for name, change := range map[string]func(*kubetest.Fake, *coordinationv1.Lease){
		"deleted": func(f *kubetest.Fake, l *coordinationv1.Lease) { f.Remove("leases", namespace, l.Name) },
		"given away": func(f *kubetest.Fake, l *coordinationv1.Lease) {
			other := "another"
			l.Spec.HolderIdentity = &other
			f.Put(l)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := kubetest.NewFake()
			m := newMachine(t, fake, nil)
			c := m.claim(t, web)
			lease := leases(t, fake)[0]
			lease.TypeMeta, lease.Namespace = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, namespace
			change(fake, &lease)
			time.Sleep(5 * time.Second)
			if c.Held() {
				t.Errorf("%s: it is held", name)
			}
			must(t, c.Release(t.Context()))
			if n := len(leases(t, fake)); name == "given away" && n != 1 {
				t.Error("another's Lease was deleted")
			}
		})
	}
}

func TestForeignLeaseBlocksTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := kubetest.NewFake()
		m := newMachine(t, fake, nil)
		c := m.claim(t, web)
		foreign := leases(t, fake)[0]
		must(t, c.Release(t.Context()))
		foreign.TypeMeta, foreign.Namespace, foreign.Labels = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, namespace, nil
		fake.Put(&foreign)
		for range 30 {
			if _, err := m.Claim(t.Context(), web); ca.ReasonFor(err) != ca.Unavailable || errors.Is(err, secret.ErrClaimed) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := leases(t, fake); len(got) != 1 || m.Status().Foreign != 30 {
			t.Errorf("%v, %+v", got, m.Status())
		}
	})
}

// Leases of processes that were killed stay while no client asks for their names.
func TestLeftClaimsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := kubetest.NewFake()
		a, b := newMachine(t, fake, nil), newMachine(t, fake, nil)
		left, live := a.claim(t, web), b.claim(t, "b.test")
		a.dead.Store(true)
		b.follow(t)
		time.Sleep(59 * time.Minute)
		if n := len(leases(t, fake)); n != 2 {
			t.Errorf("%d Leases after less than an hour", n)
		}
		time.Sleep(2 * time.Minute)
		if got := leases(t, fake); len(got) != 1 || got[0].Annotations["countersign.dev/name"] != "b.test" || !live.Held() {
			t.Errorf("%+v", got)
		}
		must(t, left.Release(t.Context()))
		must(t, live.Release(t.Context()))
	})
}
