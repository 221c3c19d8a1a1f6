package secret

import (
	"maps"
	"slices"
	"testing"
)

func TestSlotIsKeptWhileConfiguredOrWatched(t *testing.T) {
	var p places
	want := func(names ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(p.byName)); !slices.Equal(got, names) {
			t.Errorf("places of %q, want %q", got, names)
		}
	}
	watch := func(name string) (stop func()) { return p.watch(name, func(string) {}) }

	stop := watch("a")
	place := p.of("a") // a reload begins
	stop()
	if p.of("a") != place {
		t.Error("the name lost its place before the reload was in force")
	}
	p.of("refused")
	p.configured(map[string]holder{"a": &trustBundle{}})
	want("a")
	stop = watch("b")
	want("a", "b")
	stop()
	want("a")
	stop = watch("a")
	p.configured(nil)
	want("a")
	stop()
	p.notifyName("a") // unknown now, and watched by nobody
	want()
}
