package secret_test

import (
	"testing"
	"testing/synctest"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// watchOnce watches a name and stops.
func (r *reloading) watchOnce(name string) {
	r.t.Helper()
	stop, err := r.Watch(agent, name, func(string) {})
	if err != nil {
		r.t.Fatal(err)
	}
	stop()
}

func TestWatchDuringReloadLosesNoName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, during := &reloading{}, 0
		r.engine = newEngine(t, func(c *secret.Config) {
			c.Observe = func(e secret.Event) {
				if e.Kind == secret.RootRemoved { // the new list is made and not in force yet
					during++
					r.watchOnce("more")
					r.watchOnce("roots")
				}
			}
			r.config = *c
		})
		r.held("default")
		r.ca.Rotate()
		r.held("ROOTCA")
		r.change(func(c *secret.Config) {
			c.Authorities[0].PinnedRoots = r.ca.Bundle() // the root before is removed
			c.Secrets = append(c.Secrets, extra(t, "more", "spiffe://example.org/more"),
				secret.Spec{Name: "roots", Kind: secret.TrustBundle, Authorities: []string{"test"}})
		})
		if during != 1 {
			t.Fatalf("%d roots were removed", during)
		}
		first := r.held("more")
		told := r.told("more")
		after(ttl)
		if told() == 0 || r.held("more").Version == first.Version {
			t.Errorf("notified %d times of the rotation", told())
		}
		r.change(nothing) // what is held has its place in the next list, too
		r.held("more")
		r.held("roots")
	})
}
