package signing

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var errWrite = errors.New("forbidden")

func TestOneRequestCannotShutTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		waiting, leave, _ := g.enter(t.Context(), "shop")
		defer leave()
		for range 10 {
			g.Wrote("shop", "1", errWrite)
		}
		if _, leave, ok := g.enter(t.Context(), "shop"); !ok || waiting.Err() != nil {
			t.Error("shut by one request")
		} else {
			leave()
		}
		g.Wrote("shop", "2", nil)
		g.Wrote("shop", "2", errWrite)
		if waiting.Err() != nil {
			t.Error("shut, and one has succeeded between")
		}
		g.Wrote("shop", "1", errWrite)
		if waiting.Err() == nil {
			t.Error("those who wait go on after two requests in a row")
		}
	})
}

// A CA may charge for each certificate, and those of trials are wasted.
func TestShutGateLetsOneTryEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		g.Wrote("shop", "1", errWrite)
		g.Wrote("shop", "2", errWrite)
		if got := trials(t, g, "shop", 10*time.Minute); got < 5 || got > 6 { // at 10, 30, 70, 150, 310 and 630 seconds, give or take a quarter
			t.Errorf("%d entered in the first 10 minutes", got)
		}
		if got := trials(t, g, "shop", 24*time.Hour); got < 140 || got > 200 {
			t.Errorf("%d entered in a day", got)
		}
		g.Wrote("shop", "3", nil)
		if _, leave, ok := g.enter(t.Context(), "shop"); !ok {
			t.Error("shut after a success")
		} else {
			leave()
		}
		if len(g.waiting) != 0 {
			t.Errorf("%d are remembered", len(g.waiting))
		}
		g.Wrote("shop", "4", errWrite)
		g.Wrote("shop", "5", errWrite)
		if got := trials(t, g, "shop", 10*time.Minute); got < 5 || got > 6 {
			t.Errorf("%d entered in 10 minutes of the next fault", got)
		}
	})
}

// about allows for what is drawn.
func about(got, want time.Duration) bool { return got >= want*3/4 && got <= want*5/4 }

// trials is how many of those who come each second may enter.
func trials(t *testing.T, g *Gate, owner string, within time.Duration) (entered int) {
	t.Helper()
	for range within / time.Second {
		time.Sleep(time.Second)
		for range 3 {
			if _, leave, ok := g.enter(t.Context(), owner); ok {
				entered++
				leave()
			}
		}
	}
	return entered
}

func TestOneOwnerCannotShutTheGateForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		waiting, leave, _ := g.enter(t.Context(), "shop")
		defer leave()
		g.Wrote("bank", "1", errWrite)
		g.Wrote("bank", "2", errWrite)
		if _, _, ok := g.enter(t.Context(), "bank"); ok || waiting.Err() != nil {
			t.Errorf("open for its own: %t; others: %v", ok, waiting.Err())
		}
		g.Wrote("mill", "3", errWrite)
		if waiting.Err() != nil {
			t.Error("shut by two owners")
		}
		g.Wrote("farm", "4", errWrite)
		if _, _, ok := g.enter(t.Context(), "shop"); ok || waiting.Err() == nil {
			t.Error("open after three owners in a row")
		}
	})
}

func TestShutGateReportsOwnersAndReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := Gates{"example.com/mesh": NewGate(), "example.com/other": NewGate()}
		gate, began := g["example.com/mesh"], time.Now()
		gate.Wrote("shop", "1", errWrite)
		if all := g.Shut(); len(all) > 0 {
			t.Errorf("open: %+v", all)
		}
		gate.Wrote("shop", "2", errors.New("no\n"+strings.Repeat("x", 1000)))
		all := g.Shut()
		if len(all) != 1 || all[0].Signer != "example.com/mesh" || !slices.Equal(all[0].Owners, []string{"shop"}) || all[0].Forbidden {
			t.Fatalf("for one owner: %+v", all)
		}
		if all[0].Since != began || !about(all[0].Next.Sub(began), pauses.First) || len(all[0].Error) > 300 || strings.Contains(all[0].Error, "\n") {
			t.Errorf("for one owner: %+v", all[0])
		}
		time.Sleep(time.Minute)
		if _, leave, ok := gate.enter(t.Context(), "shop"); ok {
			leave()
		}
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "podcertificaterequests"}, "a", errWrite)
		gate.Wrote("bank", "3", forbidden)
		gate.Wrote("mill", "4", forbidden)
		all = g.Shut()
		if len(all) != 1 || len(all[0].Owners) > 0 || !all[0].Forbidden || !strings.Contains(all[0].Error, "podcertificaterequests") || all[0].Since != began.Add(time.Minute) {
			t.Errorf("for all: %+v", all)
		}
		time.Sleep(time.Minute)
		if _, leave, ok := gate.enter(t.Context(), "mill"); ok {
			leave()
		}
		if next := g.Shut()[0].Next; !about(time.Until(next), 2*pauses.First) {
			t.Errorf("after a trial at %s, the next is at %s", time.Now(), next)
		}
		gate.Wrote("bank", "5", nil)
		if all := g.Shut(); len(all) > 0 {
			t.Errorf("after a success: %+v", all)
		}
	})
}
