package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestFirstRequestGetsAllAndChangeIsPushedAlone(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"), leaf("other", "1"), roots("1"))
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.ask("default", "other", "ROOTCA")
		c.get("default", "other", "ROOTCA")
		c.ack()
		c.silent()
		source.Put(leaf("other", "2"))
		if a := c.get("other"); a.version != "2" {
			t.Errorf("the version is %q, want that of the content", a.version)
		}
		c.ack()
		source.Put(leaf("other", "2"))
		c.silent() // the same content again
	})
}

func TestUnknownNameIsLeftOutUntilKnown(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"))
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.ask("default", "more")
		if a := c.get("default"); d == delta && !slices.Equal(a.removed, []string{"more"}) {
			t.Errorf("removed are %q", a.removed)
		}
		c.ack()
		c.silent()
		source.Put(leaf("more", "1"))
		c.get("more")
		c.ack()
		source.Forget("more")
		if d == delta {
			if a := c.get(); !slices.Equal(a.removed, []string{"more"}) {
				t.Errorf("removed are %q", a.removed)
			}
			c.ack()
		}
		c.silent()
	})
}

func TestUnreadyNameIsSentLaterAndBlocksNoOther(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"))
		source.Empty("slow")
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.ask("default", "slow")
		c.get("default")
		c.ack()
		c.silent()
		source.Put(leaf("slow", "1"))
		c.get("slow")
		c.ack()
		source.Empty("slow") // it has expired: the client keeps it
		c.silent()
	})
}

func TestRootsGoFirstAndLeafFollowsTheirACK(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"), roots("1"))
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.ask("default", "ROOTCA")
		c.get("default", "ROOTCA")
		c.ack()
		source.Put(leaf("default", "2"), roots("2"))
		c.get("ROOTCA")
		time.Sleep(4 * time.Second)
		c.silent()
		c.ack()
		c.get("default")
		c.ack()
		c.silent()
	})
}

// The acknowledgement of an answer crosses with the push of new roots.
func TestOnlyACKOfRootsReleasesLeaf(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"), roots("1"))
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.ask("default", "ROOTCA")
		before := c.get("default", "ROOTCA")
		source.Put(leaf("default", "2"), roots("2"))
		after := c.get("ROOTCA")
		c.last = before
		c.ack()
		c.silent()
		c.last = after
		c.ack()
		c.get("default")
	})
}

func TestLeafWaitsFiveSecondsForACK(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"), roots("1"))
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.ask("default", "ROOTCA")
		c.get("default", "ROOTCA")
		c.ack()
		source.Put(leaf("default", "2"), roots("2"))
		c.get("ROOTCA")
		time.Sleep(5*time.Second - time.Millisecond)
		c.silent()
		time.Sleep(time.Millisecond)
		c.get("default")
	})
}

func TestRepeatedRootChangesDoNotStarveLeaf(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"), roots("1"))
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.ask("default", "ROOTCA")
		c.get("default", "ROOTCA")
		c.ack()
		for _, version := range []string{"2", "3", "4"} { // at 0, 2 and 4 seconds
			bundle := roots(version)
			bundle.RootFingerprints = []string{"new"}
			certificate := leaf("default", "2")
			certificate.RootFingerprint = "new"
			source.Put(certificate, bundle)
			c.get("ROOTCA")
			time.Sleep(2 * time.Second)
		}
		c.get("default") // at 6, not at 4 and 5
	})
}

func TestRefusedRootDelaysLeafOnlyForItsTime(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"), roots("1"))
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.ask("default", "ROOTCA")
		c.get("default", "ROOTCA")
		c.ack()
		source.Put(leaf("default", "2"), roots("2"))
		c.get("ROOTCA")
		c.nack()
		c.silent()
		time.Sleep(5 * time.Second)
		c.get("default")
	})
}

func TestNACKSendsNothingUntilContentChanges(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"))
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.ask("default")
		c.get("default")
		c.nack()
		c.silent()
		source.Put(leaf("default", "2"))
		c.get("default")
	})
}

func TestClientWithoutACKGetsManyChangesAsOne(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "0"))
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.ask("default")
		c.get("default")
		for i := range 50 { // not read
			source.Put(leaf("default", fmt.Sprint(i+1)))
			synctest.Wait()
		}
		answers := 0
		for c.last.version != "50" {
			c.get("default")
			answers++
		}
		if answers > 3 {
			t.Errorf("%d answers, want the one that was on its way, the one behind it, and the last", answers)
		}
		c.silent()
	})
}

func TestDroppedNameIsSilentAndResentWhenTakenAgain(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"), leaf("other", "1"))
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.ask("default", "other")
		c.get("default", "other")
		c.ack()
		c.drop("other")
		source.Put(leaf("other", "2"))
		c.silent()
		c.ask("other")
		c.get("other")
		if d != delta {
			return
		}
		c.ack()
		c.ask("other") // subscribed again without a drop: it may have been lost
		c.get("other")
	})
}

func TestNoNamesAndWildcardSubscribeToNothing(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"))
		for _, names := range [][]string{nil, {"*"}} {
			c := open(t, d, newCache(t, source))
			c.ask(names...)
			c.silent()
			c.ask("default")
			c.get("default")
			c.close()
		}
	})
}

func TestClosedSourceEndsStream(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"))
		early, late := open(t, d, newCache(t, source)), open(t, d, newCache(t, source))
		early.ask("default")
		early.get("default")
		early.ack()
		source.Fail(secret.ErrClosed)
		late.ask("default")
		for _, c := range []*client{early, late} {
			if err := <-c.ended; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "closed") {
				t.Errorf("the stream ended with %v", err)
			}
		}
	})
}

func TestEndedStreamLeavesNothingBehind(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := secrettest.New(leaf("default", "1"))
		source.Empty("slow")
		for range 10 {
			c := open(t, d, newCache(t, source))
			c.ask("default", "slow")
			synctest.Wait() // an answer is there, unread
			source.Put(leaf("default", "2"))
			c.close()
		}
		synctest.Wait()
		if n := source.Watchers(); n != 0 {
			t.Errorf("%d watchers are left", n)
		}
	})
}

func TestOversizedAnswerIsSplit(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source, names, got := secrettest.New(), []string{}, map[string]bool{}
		for i := range 5 {
			item := leaf(fmt.Sprint(i), "1")
			item.Key = make([]byte, 1<<20)
			source.Put(item)
			names = append(names, item.Name)
		}
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.ask(names...)
		for len(got) < len(names) {
			a, ok := c.poll()
			if !ok || len(a.got) > 2 {
				t.Fatalf("%d secrets in one answer, %v", len(a.got), ok)
			}
			for name := range a.got {
				got[name] = true
			}
			c.ack()
		}
		c.silent()
	})
}

func TestReturningClientGetsOnlyMissingResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := secrettest.New(leaf("default", "2"), leaf("other", "1"), roots("1"))
		c := open(t, delta, newCache(t, source))
		defer c.close()
		c.subscribe([]string{"default", "other", "ROOTCA"}, nil, map[string]string{"default": "1", "other": "1", "ROOTCA": "1", "dropped": "1"})
		c.get("default")
		c.ack()
		c.silent()
		c.ask("gone")
		if a := c.get(); !slices.Equal(a.removed, []string{"gone"}) {
			t.Errorf("removed are %q", a.removed)
		}
	})
}

// shy gives a stranger nothing.
type shy struct{ *secrettest.Source }

func (s shy) Peek(caller secret.Caller, name string) (*secret.Item, error) {
	if caller.ID == "stranger" {
		return nil, secret.ErrUnknown
	}
	return s.Source.Peek(caller, name)
}

func TestCallerIsNodeOfItsStream(t *testing.T) {
	byEachDialect(t, func(t *testing.T, d dialect) {
		source := shy{secrettest.New(leaf("default", "1"))}
		c := open(t, d, newCache(t, source))
		defer c.close()
		c.node.Id = "stranger"
		c.ask("default")
		if d == delta {
			c.get()
			c.ack() // a request without a node is the same caller's
		}
		source.Put(leaf("default", "2"))
		c.silent()
	})
}
