package secret_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func accept(pki.Identity) error { return nil }

// TestReplyOfClientBeforeReloadIsDropped has a Signer ask the old client, whose reply comes
// after another has taken its place.
func TestReplyOfClientBeforeReloadIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reloading{}
		r.engine = newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client = signOnly{c.Authorities[0].Client}
			r.config = *c
		})
		r.held("default")
		signer := r.Signer("test")
		defer signer.Close()
		order, err := secret.NewOrder(secret.Spec{Name: "more", Identity: identity(t, "spiffe://example.org/more"), TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		r.ca.Rotate()
		r.ca.Next(1, catest.Fault{Delay: 10 * time.Second})
		failed := make(chan error, 1)
		go func() {
			_, err := signer.Sign(t.Context(), order, "", accept)
			failed <- err
		}()
		synctest.Wait()
		second := catest.NewCA(catest.Options{Now: r.now})
		r.change(func(c *secret.Config) { c.Authorities[0].Client = signOnly{second} })
		if err := <-failed; ca.ReasonFor(err) != ca.Aborted {
			t.Errorf("the old client's reply: %v", err)
		}
		if slices.Contains(r.held("ROOTCA").RootFingerprints, rootPrint(r.ca)) {
			t.Error("the old client's root was taken under the new rules")
		}
	})
}

func TestSetAuthoritySwitchesClientAndRulesOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		second := withSecond(r, "x")
		before := r.held("default")
		third := catest.NewCA(catest.Options{Now: r.now})
		second.Next(1, catest.Fault{Hang: true})
		after(r.held("more").RenewAt.Sub(r.now()) + time.Second)
		asked := len(second.Requests())
		overlap := time.Duration(0)
		next := secret.Authority{Name: "test", Client: third, PinnedRoots: third.Bundle(), RootOverlap: &overlap}
		if err := r.SetAuthority(next); err == nil || !strings.Contains(err.Error(), "leave no root in it") {
			t.Errorf("pins without a root that is held: %v", err)
		}
		r.serves(rootPrint(r.ca))
		next.PinnedRoots = third.Bundle().Union(r.ca.Bundle())
		if err := r.SetAuthority(next); err != nil {
			t.Fatal(err)
		}
		if n := len(second.Requests()); n != asked {
			t.Errorf("another authority was asked %d times more", n-asked)
		}
		after(time.Minute)
		r.serves(rootPrint(third))
		if r.held("default").RootFingerprint != rootPrint(third) || r.held("default").Version == before.Version {
			t.Error("default is not signed by the new client")
		}
		if err := r.SetAuthority(secret.Authority{Name: "none", Client: third}); err == nil {
			t.Error("an unknown authority was replaced")
		}
		r.Close()
		if err := r.SetAuthority(next); !errors.Is(err, secret.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestCheckChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		before := r.held("default")
		other := catest.NewCA(catest.Options{Now: r.now})
		c := r.config
		more := slices.Concat(c.Secrets, []secret.Spec{extra(t, "more", "spiffe://example.org/more")})
		if err := r.Check(more, c.Authorities); err != nil {
			t.Error(err)
		}
		pinned := []secret.Authority{{Name: "test", Client: other, PinnedRoots: other.Bundle()}}
		if err := r.Check(c.Secrets, pinned); err == nil || !strings.Contains(err.Error(), "leave no root in it") {
			t.Errorf("got %v", err)
		}
		if _, err := r.Peek(agent, "more"); !errors.Is(err, secret.ErrUnknown) || r.held("default") != before {
			t.Errorf("something was taken over: %v", err)
		}
		if _, due := r.Due("test"); due {
			t.Error("a secret that was only checked is due")
		}
		r.untilRenewal(2 * time.Second)
		r.requests(2)
	})
}
