package lease

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// waitFor is in a bubble's time.
func waitFor(t *testing.T, limit time.Duration, what string, so func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !so() {
		if time.Since(begin) > limit {
			t.Fatalf("within %s it did not come to be: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
	}
	return time.Since(begin)
}

// two are a leader and a follower.
func two(t *testing.T, lead func(context.Context, *replica)) (s apiServer, leader, follower *replica) {
	t.Helper()
	s = newAPIServer()
	leader = s.replica(t, "a", lead)
	waitFor(t, time.Second, "a leads", leader.is)
	follower = s.replica(t, "b", lead)
	return s, leader, follower
}

func TestOneReplicaLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := two(t, untilEnd)
		time.Sleep(time.Hour)
		synctest.Wait()
		if !a.is() || b.is() || a.led() != 1 || a.Held() != nil || s.holder() != "a" {
			t.Errorf("a leads: %t in term %d (%v), b: %t, by the server %q", a.is(), a.led(), a.Held(), b.is(), s.holder())
		}
		if err := b.Held(); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), `ra/countersign-ra, whose holder is "a"`) {
			t.Error(err)
		}
		if got := b.Status(); got != (Status{Holder: "a"}) {
			t.Errorf("%+v", got)
		}
		if got := a.Status(); got != (Status{Leading: true, Holder: "a"}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestShutdownReleasesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := two(t, untilEnd)
		time.Sleep(5 * time.Second)
		a.end()
		if s.holder() != "" || !strings.Contains(a.log.String(), "released the Lease") {
			t.Errorf("it is held by %q; the log: %s", s.holder(), a.log.String())
		}
		took := waitFor(t, 8*time.Second, "b leads", b.is) // a follower looks every 3 to 6.6 s
		t.Logf("b led %s later", took)
	})
}

func TestReleaseWaitsForLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drained := 40 * time.Second // longer than a lease
		s, a, b := two(t, func(ctx context.Context, _ *replica) {
			<-ctx.Done()
			time.Sleep(drained)
		})
		begin := time.Now()
		go a.end()
		for a.is() {
			if s.holder() != "a" || b.is() {
				t.Fatalf("%s after the end, while a winds up, the Lease is of %q", time.Since(begin), s.holder())
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		waitFor(t, 8*time.Second, "b leads", b.is) // a follower looks every 3 to 6.6 s
		if took := time.Since(begin); took < drained {
			t.Errorf("after %s", took)
		}
	})
}

func TestFollowerLeadsOnceTheLeaderIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := two(t, untilEnd)
		time.Sleep(5 * time.Second)
		a.set(true, false)
		took := waitFor(t, 22*time.Second, "b leads", func() bool {
			if a.is() && b.is() {
				t.Fatal("both lead")
			}
			return b.is()
		})
		t.Logf("b led %s later", took)
		if fault := a.Status().Fault; fault == "" || !strings.Contains(a.log.String(), "no longer leads") {
			t.Errorf("a says %q; its log: %s", fault, a.log.String())
		}
		a.set(false, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if a.is() || !b.is() || a.Status() != (Status{Holder: "b"}) {
			t.Errorf("then a leads: %t, b: %t, and a says %+v", a.is(), b.is(), a.Status())
		}
	})
}

// An answer that is lost renews nothing, also if the server has taken the renewal.
func TestLostAnswersEndTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := two(t, untilEnd)
		a.set(false, true)
		waitFor(t, 15*time.Second, "a leads no more", func() bool { return !a.is() })
		if b.is() {
			t.Error("b leads already")
		}
		a.set(false, false)
		waitFor(t, 30*time.Second, "one leads", func() bool { return a.is() || b.is() })
	})
}

// The operator's hand is seen at the next renewal, not at the end of the lease.
func TestStolenLeaseEndsTheTermAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, _ := two(t, untilEnd)
		time.Sleep(5 * time.Second)
		s.steal("somebody")
		took := waitFor(t, 3*time.Second, "a leads no more", func() bool { return !a.is() })
		t.Logf("it took %s", took)
		if a.Held() == nil || a.Status().Holder != "somebody" {
			t.Errorf("%+v", a.Status())
		}
	})
}

// A leader that was stopped for long wakes up: it notices the time before it sees who leads now.
func TestLateLeaderReleasesNoLeaseOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer()
		a := s.replica(t, "a", untilEnd)
		waitFor(t, time.Second, "a leads", a.is)
		before := s.Changes()
		waitFor(t, 10*time.Second, "a renews", func() bool { return s.Changes() > before })
		s.steal("b")
		a.jump(time.Minute)
		waitFor(t, look+time.Second, "a leads no more", func() bool { return !a.is() })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s.holder() != "b" {
			t.Errorf("it is held by %q", s.holder())
		}
	})
}

// An operator, or a cleaner, deletes the Lease: its holder makes it anew, and nobody else before the
// holder's term is over.
func TestDeletedLeaseMakesNoSecondLeader(t *testing.T) {
	for _, after := range []time.Duration{0, 500 * time.Millisecond, time.Second, 1500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s, a, b := two(t, untilEnd)
			time.Sleep(5*time.Second + after)
			s.remove()
			for range 3000 {
				if a.Held() == nil && b.Held() == nil {
					t.Fatalf("both hold the Lease; deleted after %s", after)
				}
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
			if !a.is() || b.is() || a.led() != 1 {
				t.Errorf("a leads: %t in term %d, b: %t", a.is(), a.led(), b.is())
			}
			a.set(true, false)
			s.remove()
			waitFor(t, 40*time.Second, "b leads", func() bool {
				if a.Held() == nil && b.Held() == nil {
					t.Fatal("both hold the Lease")
				}
				return b.is()
			})
		})
	}
}

func TestNewTermWaitsForLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer()
		stuck := make(chan struct{})
		a := s.replica(t, "a", func(ctx context.Context, _ *replica) {
			<-ctx.Done()
			<-stuck
		})
		waitFor(t, time.Second, "a leads", a.is)
		a.set(true, false)
		time.Sleep(time.Minute)
		a.set(false, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if a.led() != 1 || a.Held() == nil {
			t.Errorf("term %d, %v", a.led(), a.Held())
		}
		close(stuck)
		waitFor(t, time.Minute, "it leads again", func() bool { return a.is() && a.led() == 2 })
	})
}

func TestLeadThatReturnsGivesTheLeaseUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer()
		a := s.replica(t, "a", func(context.Context, *replica) {})
		waitFor(t, time.Second, "a has led", func() bool { return a.led() == 1 })
		b := s.replica(t, "b", untilEnd)
		waitFor(t, time.Minute, "b leads", b.is)
		if n := s.Changes(); n > 10 || a.is() {
			t.Errorf("a leads: %t, %d writes", a.is(), n)
		}
	})
}

func TestAPIServerThatIsAwayAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer()
		a := s.replica(t, "a", untilEnd)
		a.set(true, false)
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.is() || a.Status().Fault == "" || strings.Count(a.log.String(), "cannot reach") != 1 {
			t.Errorf("it leads: %t, %+v; the log: %s", a.is(), a.Status(), a.log.String())
		}
		a.set(false, false)
		waitFor(t, 15*time.Second, "it leads", a.is)
		if got := a.Status(); got.Fault != "" {
			t.Errorf("%+v", got)
		}
	})
}

func TestHangingAPIServerDoesNotDelayTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _ := two(t, untilEnd)
		a.set(true, false)
		begin := time.Now()
		a.end()
		if took := time.Since(begin); took > 11*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestEachProcessIsAnotherHolder(t *testing.T) {
	first, err := New(Config{Client: kubetest.NewFake().Client(), Namespace: "ra", Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := New(Config{Client: kubetest.NewFake().Client(), Namespace: "ra", Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if first.cfg.Identity == second.cfg.Identity {
		t.Errorf("both are %q", first.cfg.Identity)
	}
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	client := kubetest.NewFake().Client()
	for name, cfg := range map[string]Config{
		"no client":       {Namespace: "ra", Name: "x"},
		"no namespace":    {Client: client, Name: "x"},
		"a path":          {Client: client, Namespace: "ra/..", Name: "x"},
		"no name":         {Client: client, Namespace: "ra"},
		"an odd name":     {Client: client, Namespace: "ra", Name: "X_"},
		"a short time":    {Client: client, Namespace: "ra", Name: "x", Duration: time.Second},
		"a negative time": {Client: client, Namespace: "ra", Name: "x", Duration: -15 * time.Second},
		"a long time":     {Client: client, Namespace: "ra", Name: "x", Duration: time.Hour},
		"half a second":   {Client: client, Namespace: "ra", Name: "x", Duration: 3500 * time.Millisecond},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
