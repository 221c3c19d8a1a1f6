package secret_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// newHeldUp is a reloading whose authority ignores its context, so that a reload waits
// for the request on its way: the new list is made and not in force yet.
func newHeldUp(t *testing.T) (*reloading, *stubborn) {
	t.Helper()
	r, s := &reloading{}, &stubborn{free: make(chan struct{})}
	t.Cleanup(func() { close(s.free) })
	r.engine = newEngine(t, func(c *secret.Config) {
		client(func(authority *catest.CA) ca.Client { s.Client = authority; return s })(c)
		r.config = *c
	})
	r.held("default")
	s.stuck.Store(true)
	r.untilRenewal(time.Second)
	return r, s
}

// watchOnce watches a name and stops.
func (r *reloading) watchOnce(name string) {
	r.t.Helper()
	stop, err := r.Watch(agent, name, func(string) {})
	if err != nil {
		r.t.Fatal(err)
	}
	stop()
}

func TestAWatchThatComesAndGoesDuringAReloadLosesNoName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newHeldUp(t)
		done := make(chan error)
		go func() {
			done <- r.try(func(c *secret.Config) {
				c.Secrets = append(c.Secrets, extra(t, "more", "spiffe://example.org/more"),
					secret.Spec{Name: "roots", Kind: secret.TrustBundle, Authorities: []string{"test"}})
			})
		}()
		synctest.Wait() // the reload waits for the request
		r.watchOnce("more")
		r.watchOnce("roots")
		s.stuck.Store(false)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		first := r.held("more")
		told, toldRoots := r.told("more"), r.told("roots")
		after(ttl)
		if told() == 0 || r.held("more").Version == first.Version {
			t.Errorf("told %d times of the rotation", told())
		}
		r.ca.Rotate()
		after(ttl)
		if toldRoots() == 0 {
			t.Error("not told of the new root")
		}
		r.change(nothing) // what is held has its place in the next list, too
		r.held("more")
		r.held("roots")
	})
}
