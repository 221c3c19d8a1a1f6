package xds

import "testing"

func TestDeltaResumesWithClientVersions(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("same", "1")
		b.source.set("changed", "2")
		b.source.set("new", "1")
		b.source.set("not-asked", "2")
		c := b.dialDelta("")
		has := map[string]string{"same": "1", "changed": "1", "gone": "1", "not-asked": "1"}
		c.resume(has, "same", "changed", "new", "gone")
		c.gets("-gone", "changed=2", "new=1")
		c.ack()
		c.silent()
		b.source.set("same", "2")
		c.gets("same=2")
	})
}

func TestResumedDeltaStreamIsSilentWhenUnchanged(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		c := b.dialDelta("")
		c.resume(map[string]string{"a": "1"}, "a")
		c.silent()
		c.subscribe("a") // forgotten since
		c.gets("a=1")
	})
}

func TestInitialVersionsCountInFirstDeltaRequestOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		c := b.dialDelta("")
		c.subscribe("b")
		c.resume(map[string]string{"a": "1"}, "a")
		c.gets("a=1")
	}, "b")
}

func TestResumedUnreadyNameIsSentOnlyIfVersionDiffers(t *testing.T) {
	for version, want := range map[string][]string{"1": nil, "2": {"a=2"}} {
		inBubble(t, func(t *testing.T, b *bench) {
			c := b.dialDelta("")
			c.resume(map[string]string{"a": "1"}, "a")
			c.silent()
			b.source.set("a", version)
			if want == nil {
				c.silent()
			} else {
				c.gets(want...)
			}
		}, "a")
	}
}

func TestResumedNameSubscribedAgainIsAlwaysSent(t *testing.T) {
	inBubble(t, func(_ *testing.T, b *bench) {
		c := b.dialDelta("")
		c.resume(map[string]string{"a": "1"}, "a")
		c.subscribe("a") // forgotten since
		b.source.set("a", "1")
		c.gets("a=1")
	}, "a")
}
