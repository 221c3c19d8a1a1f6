package xds

import (
	"fmt"
	"strings"
	"testing"
)

func TestNACKLogNamesRefusedResources(t *testing.T) {
	inEachDialect(t, func(t *testing.T, b *bench, c speaker) {
		b.source.have("default", "ROOTCA")
		c.want("default", "ROOTCA", "slow")
		c.gets("ROOTCA=1", "default=1")
		c.refuse("no")
		if log := b.logged(); !strings.Contains(log, `names="ROOTCA, default"`) {
			t.Errorf("the log has %q", log)
		}
		if nacks := b.seen(Nacked); len(nacks) != 1 || fmt.Sprint(nacks[0].Client.Names) != "[ROOTCA default]" {
			t.Errorf("notified %+v, want both names", nacks)
		}
		c.takes() // one of both, to find the one at fault
		b.source.set("default", "2")
		c.gets("default=2")
		c.refuse("no")
		if log := b.logged(); !strings.Contains(log, "names=default ") {
			t.Errorf("the log has %q", log)
		}
	}, "slow")
}

func TestNACKLogIsBounded(t *testing.T) {
	inEachDialect(t, func(t *testing.T, b *bench, c speaker) {
		var names, want []string
		for i := range 15 {
			names = append(names, fmt.Sprintf("%02d\nlevel=ERROR%s", i, strings.Repeat("x", 1000)))
			b.source.set(names[i], "1")
			want = append(want, names[i]+"=1")
		}
		c.want(names...)
		c.gets(want...)
		c.refuse("no")
		log := b.logged()
		if !strings.Contains(log, "and 5 more") || strings.Contains(log, "\nlevel=ERROR") || len(log) > 4000 {
			t.Errorf("the log has %d bytes: %.4000q", len(log), log)
		}
	})
}

func TestRefusedVersionIsNotAcknowledgedLater(t *testing.T) {
	inEachDialect(t, func(t *testing.T, b *bench, c speaker) {
		b.source.set("a", "1")
		c.want("a")
		c.gets("a=1")
		c.refuse("no")
		c.accept()
		c.refuse("again")
		if nacks, acks := b.seen(Nacked), b.seen(Acked); len(nacks) != 1 || len(acks) != 0 {
			t.Errorf("notified %v and %v, want one refusal", nacks, acks)
		}
	})
}

func TestRepeatedNACKsDoNotFillLog(t *testing.T) {
	inEachDialect(t, func(t *testing.T, b *bench, c speaker) {
		c.want("a")
		for i := range 100 {
			b.source.set("a", fmt.Sprint(i))
			c.gets(fmt.Sprintf("a=%d", i))
			c.refuse("no")
		}
		if n := strings.Count(b.logged(), "client refused"); n != 10 {
			t.Errorf("%d log lines for a hundred refusals at once, want 10", n)
		}
		if n := len(b.seen(Nacked)); n != 100 {
			t.Errorf("%d refusals counted, want 100", n)
		}
		c.silent() // a minute
		b.source.set("a", "100")
		c.gets("a=100")
		c.refuse("no")
		if !strings.Contains(b.logged(), "suppressed=90") {
			t.Error("the next line does not say that 90 went unsaid")
		}
	}, "a")
}
