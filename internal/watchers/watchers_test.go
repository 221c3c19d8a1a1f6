package watchers

import (
	"slices"
	"testing"
)

func TestRemovedFunctionIsNotCalled(t *testing.T) {
	var s Set[func(*[]int)]
	var removes []func()
	for i := range 5 {
		removes = append(removes, s.Add(func(called *[]int) { *called = append(*called, i) }))
	}
	for _, step := range []struct {
		remove int
		left   []int
	}{
		{1, []int{0, 2, 3, 4}}, {1, []int{0, 2, 3, 4}}, {4, []int{0, 2, 3}}, {0, []int{2, 3}}, {3, []int{2}}, {2, nil}, {2, nil},
	} {
		removes[step.remove]()
		var called []int
		for _, notify := range s.All() {
			notify(&called)
		}
		slices.Sort(called)
		if !slices.Equal(called, step.left) || s.Len() != len(step.left) {
			t.Errorf("without %d: called %v of %d, want %v", step.remove, called, s.Len(), step.left)
		}
	}
}

func TestFunctionMayRemoveItself(t *testing.T) {
	var s Set[func()]
	var remove func()
	remove = s.Add(func() { remove() })
	for _, notify := range s.All() {
		notify()
	}
	if s.Len() != 0 {
		t.Errorf("%d are left", s.Len())
	}
}
