package hub

import (
	"testing"
	"time"
)

func TestClosedHubNotifiesNoWatcher(t *testing.T) {
	for name, before := range map[string]func(h *Hub[string]){
		"nothing waits":  func(*Hub[string]) {},
		"a change waits": func(h *Hub[string]) { h.Changed("foo") },
		"many are late":  func(h *Hub[string]) { h.All() },
		"some notified":  func(h *Hub[string]) { h.Spread("foo"); pass(0) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *Hub[string]) {
				e := newEar()
				for range 2 * batch {
					defer h.Watch("foo", e.notify)()
				}
				before(h)
				told := len(e.heard())
				h.Close()
				h.mu.Lock() // a timer of 0 s may have run meanwhile
				timers := []*time.Timer{h.timer, h.pace}
				h.mu.Unlock()
				for _, timer := range timers {
					if timer != nil && timer.Stop() {
						t.Error("a closed hub has a timer that runs")
					}
				}
				h.tell() // a timer that had fired when it was stopped
				h.tellSome()
				pass(time.Second)
				h.Changed("foo")
				h.All()
				h.Spread("foo")
				pass(time.Second)
				h.Close()
				if got := len(e.heard()); got != told {
					t.Errorf("%d were notified", got-told)
				}
			})
		})
	}
}
