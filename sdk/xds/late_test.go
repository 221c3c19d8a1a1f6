package xds

import (
	"testing"
	"testing/synctest"
)

// slow is a catalog whose watches begin late.
type slow struct {
	*catalog
	begin chan struct{}
}

func (s slow) Watch(caller, name string, notify func(string)) (func(), error) {
	<-s.begin
	return s.catalog.Watch(caller, name, notify)
}

func TestWatchStartedAfterItsNameWasLeftIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slow{newCatalog(), make(chan struct{})}
		b := newBench(t, Config[string]{Types: []Type[string]{{URL: thingURL, Source: s}}}, s.memorySource)
		s.have("a")
		c := b.dialDelta("")
		c.subscribe("*")
		synctest.Wait() // a is listed, and not watched yet
		c.unsubscribe("*")
		synctest.Wait()
		close(s.begin)
		synctest.Wait()
		if left := s.watched(); len(left) > 0 {
			t.Errorf("watched %v although it was left", left)
		}
	})
}
