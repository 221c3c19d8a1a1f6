package recent_test

import (
	"testing"

	"github.com/countersign-dev/countersign/internal/recent"
)

func TestHalfThatWasUsedLastIsKept(t *testing.T) {
	m := recent.New[int, string](200)
	m.Put(-1, "used")
	m.Put(-2, "unused")
	for i := range 10_000 {
		m.Put(i, "new")
		if v, ok := m.Get(-1); !ok || v != "used" {
			t.Fatalf("after %d: %q, %v", i, v, ok)
		}
		if v, ok := m.Get(max(0, i-45)); !ok || v != "new" {
			t.Fatalf("after %d: %q, %v", i, v, ok)
		}
		if m.Len() > 200 {
			t.Fatalf("%d entries", m.Len())
		}
	}
	if _, ok := m.Get(-2); ok {
		t.Error("an entry without use was kept")
	}
}

func TestLatestValueIsReturned(t *testing.T) {
	m := recent.New[int, int](4)
	for i := range 20 {
		m.Put(0, i) // old by now
		if v, ok := m.Get(0); !ok || v != i {
			t.Errorf("%d, %v, want %d", v, ok, i)
		}
		m.Put(100+i, 0)
		m.Put(200+i, 0)
		m.Get(0)
	}
	m.Delete(0)
	if _, ok := m.Get(0); ok {
		t.Error("a deleted entry is there")
	}
}
