package schematest

import (
	"slices"
	"testing"
)

func TestReleasesAreInOrder(t *testing.T) {
	got := []string{"kept/1.0", "kept/0.10", "kept/0.2"}
	slices.SortFunc(got, byNumber)
	if want := []string{"kept/0.2", "kept/0.10", "kept/1.0"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
