package environ

import "testing"

func TestLookupFindsWholeNames(t *testing.T) {
	t.Parallel()
	vars := Vars{"HOMEPAGE=x", "HOME=/a=b", "HOME=/c", "EMPTY="}
	for name, want := range map[string]struct {
		value string
		ok    bool
	}{"HOME": {"/a=b", true}, "HOMEPAGE": {"x", true}, "EMPTY": {"", true}, "HOM": {"", false}, "": {"", false}} {
		if value, ok := vars.Lookup(name); value != want.value || ok != want.ok {
			t.Errorf("%q: %q, %t", name, value, ok)
		}
		if got := vars.Get(name); got != want.value {
			t.Errorf("%q: %q", name, got)
		}
	}
}
