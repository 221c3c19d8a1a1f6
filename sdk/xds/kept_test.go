package xds

import (
	"testing"
	"time"
)

// A stream keeps the bodies of what it sent only if it has to repeat them.
func TestStreamKeepsNoBodyThatTheSourceCanMakeAgain(t *testing.T) {
	kept := &Resource{Name: "a", Version: "1"}
	full := &Resource{Name: "a", Version: "1", Body: bodyOf("content"), Kept: kept}
	for _, complete := range []bool{false, true} {
		s := subscription{policy: &policy{complete: complete}}
		e, _ := s.add("a")
		s.record(e, full, 1, time.Time{})
		if want := map[bool]*Resource{false: kept, true: full}[complete]; e.sent != want {
			t.Errorf("complete answers %t: the stream keeps %+v", complete, e.sent)
		}
		if !s.unchanged(e, full) {
			t.Errorf("complete answers %t: what was sent counts as changed", complete)
		}
	}
}
