package signing

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
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

func TestShutGateLetsOneTryNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		g.Wrote("shop", "1", errWrite)
		g.Wrote("shop", "2", errWrite)
		entered := 0
		for range 60 {
			time.Sleep(time.Second)
			for range 10 {
				if _, leave, ok := g.enter(t.Context(), "shop"); ok {
					entered++
					leave()
				}
			}
		}
		if entered != 6 {
			t.Errorf("%d entered within a minute", entered)
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
	})
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
