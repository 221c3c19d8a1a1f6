//go:build !race

package istioca_test

import (
	"testing"
	"testing/synctest"
)

// With the race detector the model takes minutes.
func TestFleetSharesAQuota(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	synctest.Test(t, func(t *testing.T) {
		f := scaled(200)
		f.kill = f.bound() / 2
		f.measure(t).keepsBounds(t, f)
	})
}
