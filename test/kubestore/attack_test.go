package kubestore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand/kubestore"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Copies that are in line are not read at a start, or at a list anew: 50,000 names would be 100,000 calls.
func TestCopiesInLineAreNotReadAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		a := newMachine(t, fake, withCopies)
		a.follow(t)
		for i := range 20 { // a list has some of the copies before the records, and others after them
			e, r := certificate(fmt.Sprintf("%c.test", 'a'+i), authority, time.Now().Add(24*time.Hour))
			must(t, a.Store.Store(t.Context(), e, r))
		}
		time.Sleep(time.Minute)
		before := fake.Called("get", "secrets")
		b := newMachine(t, fake, withCopies)
		_, err := b.Index(t.Context())
		must(t, err)
		b.follow(t)
		time.Sleep(time.Minute)
		gone := fake.FailOn("watch", "secrets", apierrors.NewResourceExpired("too old"))
		fake.Cut()
		time.Sleep(2 * time.Minute)
		gone()
		time.Sleep(2 * time.Minute)
		if n := fake.Called("get", "secrets") - before; n > 0 {
			t.Errorf("%d Secrets were read", n)
		}
	})
}

// What is deleted while nothing is watched is noticed by the next list, be it a record or its copy.
func TestListAnewNoticesThatOneOfTwoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		m := newMachine(t, fake, withCopies)
		m.follow(t)
		for _, name := range []string{"a.test", "b.test"} {
			e, r := certificate(name, authority, time.Now().Add(24*time.Hour))
			must(t, m.Store.Store(t.Context(), e, r))
		}
		time.Sleep(time.Minute)
		m.news()
		m.away.Store(true)
		gone := fake.FailOn("watch", "secrets", apierrors.NewResourceExpired("too old"))
		fake.Cut()
		for _, s := range recordsIn(t, fake) {
			if s.Annotations["countersign.dev/name"] == "a.test" {
				fake.Remove("secrets", namespace, s.Name)
			}
		}
		fake.Remove("secrets", namespace, "b.test")
		m.away.Store(false)
		time.Sleep(5 * time.Minute)
		gone()
		time.Sleep(5 * time.Minute)
		if got := m.news(); !slices.Equal(got, []string{"-a.test"}) {
			t.Errorf("%v", got)
		}
		if copyIn(fake, "b.test") == nil {
			t.Error("a deleted copy stays away")
		}
	})
}

// Another client's record may have any text as its name.
func TestNameOutsideDNSSyntaxIsNotKept(t *testing.T) {
	fake := kubetest.NewFake()
	m := newMachine(t, fake, nil)
	for _, name := range []string{strings.Repeat("a.", 50_000) + "test", "A.test", "a\nb", ""} {
		must(t, m.Store.Store(t.Context(), secret.Entry{Name: name}, secret.Record{Content: []byte("{}")}))
	}
	if index, err := m.Index(t.Context()); err != nil || len(index) != 0 || m.Status().Damaged != 4 {
		t.Errorf("%d names, %v, %+v", len(index), err, m.Status())
	}
}

// One Lease that cannot be deleted keeps no other.
func TestLeaseThatCannotBeDeletedKeepsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := kubetest.NewFake()
		a, b := newMachine(t, fake, nil), newMachine(t, fake, nil)
		var left []secret.Claim
		for i := range 5 {
			left = append(left, a.claim(t, fmt.Sprintf("%d.test", i)))
		}
		a.dead.Store(true)
		kept := leases(t, fake)[0].Name
		fake.Also(func(c *kubetest.Call) error {
			if c.Verb == "delete" && c.Name == kept {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, c.Name, errAway)
			}
			return nil
		})
		b.follow(t)
		time.Sleep(2 * time.Hour)
		if n := len(leases(t, fake)); n != 1 {
			t.Errorf("%d Leases are left, want 1", n)
		}
		for _, c := range left {
			must(t, c.Release(t.Context()))
		}
	})
}

// Two agents may write one copy at once.
func TestCopyThatAnotherAgentWritesAtOnceIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		var log logtest.Log
		m := newMachine(t, fake, func(cfg *kubestore.Config) { cfg.TLSSecrets, cfg.Log = true, log.Logger() })
		m.follow(t)
		e, r := certificate(web, authority, time.Now().Add(24*time.Hour))
		var once sync.Once
		fake.Also(func(c *kubetest.Call) (err error) {
			if c.Verb == "create" && c.Name == web {
				once.Do(func() { err = apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, web) })
			}
			return err
		})
		must(t, m.Store.Store(t.Context(), e, r))
		time.Sleep(30 * time.Second)
		if copyIn(fake, web) == nil || strings.Contains(log.String(), "WARN") {
			t.Errorf("%v\n%s", copyIn(fake, web) != nil, log.String())
		}
	})
}

// A deletion that the holder of before has sent arrives when another has taken the claim over and has
// stored a certificate.
func TestLateDeletionOfEarlierHolderDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		a, b := newMachine(t, fake, nil), newMachine(t, fake, nil)
		e, r := certificate(web, authority, time.Now().Add(time.Hour))
		must(t, a.Store.Store(t.Context(), e, r))
		first := a.claim(t, web)
		late, begun := make(chan struct{}), time.Now()
		fake.Also(func(c *kubetest.Call) error {
			switch {
			case c.Resource == "leases" && c.Verb == "update" && time.Since(begun) < 11*time.Second:
				return errAway // it is not renewed
			case c.Resource == "secrets" && c.Verb == "delete":
				<-late
			}
			return nil
		})
		done := make(chan error, 1)
		go func() {
			time.Sleep(9 * time.Second)
			if !first.Held() {
				t.Error("the claim has run out")
			}
			done <- a.Delete(context.Background(), web)
		}()
		second, _ := b.wins(t, web, first)
		e, r = certificate(web, authority, time.Now().Add(24*time.Hour))
		must(t, b.Store.Store(t.Context(), e, r))
		close(late)
		if err := <-done; err == nil {
			t.Error("it was deleted")
		}
		if got, err := b.Load(t.Context(), web); err != nil || string(got.Content) != string(r.Content) {
			t.Errorf("the record has %d bytes, %v", len(got.Content), err)
		}
		must(t, second.Release(t.Context()))
		must(t, first.Release(t.Context()))
	})
}
