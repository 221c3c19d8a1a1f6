package tlsconfig_test

import (
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/sdk/catest"
)

// shakers shake hands again and again until they are stopped.
type shakers struct {
	all     sync.WaitGroup
	mu      sync.Mutex
	changed *sync.Cond
	done    []int // how often each has
	stopped bool
}

func startShakers(n int, shake func() error) *shakers {
	s := &shakers{done: make([]int, n)}
	s.changed = sync.NewCond(&s.mu)
	for i := range n {
		s.all.Go(func() {
			for s.count(i) && shake() == nil {
				continue
			}
			s.stop()
		})
	}
	return s
}

// count reports whether to go on.
func (s *shakers) count(i int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[i]++
	s.changed.Broadcast()
	return !s.stopped
}

func (s *shakers) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.changed.Broadcast()
}

// settle waits until each handshake of now is over, and a whole one after it.
func (s *shakers) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, before := range append([]int(nil), s.done...) {
		for s.done[i] < before+2 && !s.stopped {
			s.changed.Wait()
		}
	}
}

// Roots overlap as the engine has them: the new one comes before the certificates
// under it, the old one goes when no certificate needs it any more.
func TestNoHandshakeFailsDuringRotations(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	authority := catest.NewCA(catest.Options{})
	web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
	s, c := server(t, web.options()), client(t, app.options())
	both := func(step func(*party)) {
		step(web)
		step(app)
	}
	shaking := startShakers(4, func() error {
		err := meet(t, s, c).err()
		if err != nil {
			t.Error(err)
		}
		return err
	})
	for range 10 {
		old := authority.Bundle()
		authority.Rotate()
		both(func(p *party) { p.trust(old.Union(authority.Bundle())) })
		both(func(p *party) { p.renew(authority) })
		shaking.settle()
		both(func(p *party) { p.trust(authority.Bundle()) })
	}
	shaking.stop()
	shaking.all.Wait()
}
