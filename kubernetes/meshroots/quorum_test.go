package meshroots_test

import (
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/meshroots"
)

// An owner who breaks and mends his ConfigMap by turns does not begin a new hour, nor the wait of the
// root, with each turn.
func TestOwnerWhoBreaksAndMendsByTurnsDelaysARootForAnHour(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, both := ratest.Bundles(t, 2)
		s.has(each[0])
		s.start()
		s.ready(each[0])
		s.has(both)
		late := 0 // how often the root was taken back after the hour
		was := true
		for minute := range 6 * 60 {
			if minute%30 == 0 { // another one's, which is not ours to change
				s.put(foreign("shop", nil))
			}
			if minute%30 == 5 {
				s.remove("shop")
			}
			s.pass(time.Minute)
			is := s.confirmed().Equal(both)
			if was && !is && minute > 65 {
				late++
			}
			was = is
		}
		if late > 0 || !was {
			t.Errorf("the root was taken back %d times after the hour, and is written: %t", late, was)
		}
	}, namespace("shop"), namespace("bank"), namespace("cafe"))
}

// Many owners, one after the other, delay a root no longer than one.
func TestOwnersInTurnDelayARootForAnHour(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, both := ratest.Bundles(t, 2)
		s.has(each[0])
		s.start()
		s.ready(each[0])
		s.has(both)
		hostile := []string{"n-0000", "n-0001", "n-0002"}
		for hour := range 6 {
			who := hostile[hour%len(hostile)]
			s.put(foreign(who, nil))
			for range 50 {
				s.pass(time.Minute)
				if hour > 1 && !s.confirmed().Equal(both) {
					t.Fatalf("not written in turn %d\n%s", hour, &s.log)
				}
			}
			s.remove(who)
			s.pass(10 * time.Minute)
		}
	}, many(10)...)
}

// If another program overwrites most of them, the mesh does not have the root.
func TestRootIsTakenBackIfMostNamespacesLoseIt(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, both := ratest.Bundles(t, 2)
		s.has(each[0])
		s.start()
		s.has(both)
		s.pass(2 * time.Hour)
		s.ready(both)
		for _, in := range []string{"n-0000", "n-0001", "n-0002"} {
			s.put(foreign(in, nil))
		}
		s.pass(5 * time.Minute)
		if s.confirmed().Equal(both) {
			t.Error("it counts as written still")
		}
	}, many(4)...)
}

// An API server that gives one refusal and does not answer afterwards has not refused for an hour.
func TestOneRefusalDoesNotLeaveANamespaceBehind(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, both := ratest.Bundles(t, 2)
		s.has(each[0])
		s.start()
		s.ready(each[0])
		refusals := 0
		s.set(func() {
			s.refuse = func(in string) error {
				if in != "shop" {
					return nil
				}
				if refusals++; refusals == 1 {
					return errForbidden
				}
				return errAway
			}
		})
		s.has(both)
		s.pass(3 * time.Hour)
		if left := s.Status().Left; left != nil || s.confirmed().Equal(both) {
			t.Errorf("left behind: %q", left)
		}
	}, []runtime.Object{namespace("shop"), namespace("bank")}...)
}

// Each leader knows since when namespaces lack the root: who leads does not matter to its hour.
func TestHourOfANamespaceOutlivesTheLeader(t *testing.T) {
	var cfg *meshroots.Config
	var lacking atomic.Int64 // since the epoch
	inBubble(t, func(c *meshroots.Config) {
		cfg, c.Lacking = c, func() time.Time {
			if since := lacking.Load(); since != 0 {
				return time.Unix(0, since)
			}
			return time.Time{}
		}
	}, func(s *site) {
		each, both := ratest.Bundles(t, 2)
		s.has(each[0])
		s.start()
		s.ready(each[0])
		s.set(func() { s.refuse = func(in string) error { return map[string]error{"shop": errForbidden}[in] } })
		s.has(both)
		lacking.Store(time.Now().UnixNano())
		for range 3 {
			s.pass(15 * time.Minute)
			s.stop()
			s.Keeper, _ = meshroots.New(*cfg)
			s.start()
			if s.confirmed().Equal(both) {
				t.Fatal("it counts as written within the hour")
			}
		}
		s.pass(15 * time.Minute)
		if !s.confirmed().Equal(both) {
			t.Errorf("not written after an hour\n%s", &s.log)
		}
		// A record of a clock that was ahead does not count.
		lacking.Store(time.Now().Add(time.Hour).UnixNano())
		s.stop()
		s.set(func() { s.written = nil })
		s.Keeper, _ = meshroots.New(*cfg)
		s.start()
		s.pass(50 * time.Minute)
		if s.confirmed().Equal(both) {
			t.Error("it counts as written within an hour of a clock that was ahead")
		}
	}, many(4)[0], namespace("shop"), namespace("bank"), namespace("cafe"))
}
