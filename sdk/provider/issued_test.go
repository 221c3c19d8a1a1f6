package provider

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestIssuedAreBoundedAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held Issued[int, string]
		if _, ok := held.Of(1); ok {
			t.Error("it remembers what was never kept")
		}
		for i := range 2 * maxIssued {
			held.Keep(i, "old")
		}
		held.Keep(2*maxIssued-1, "new")
		if got, ok := held.Of(2*maxIssued - 1); !ok || got != "new" || len(held.held) != maxIssued {
			t.Errorf("got %q; %d are held", got, len(held.held))
		}
		time.Sleep(issuedLife)
		if _, ok := held.Of(2*maxIssued - 1); ok {
			t.Error("an old one is still known")
		}
		held.Keep(1, "one")
		if got, ok := held.Of(1); !ok || got != "one" || len(held.held) != 1 {
			t.Errorf("got %q; %d are held later", got, len(held.held))
		}
	})
}
