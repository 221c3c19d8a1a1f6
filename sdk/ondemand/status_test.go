package ondemand_test

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ondemand"
)

// unlimited is a budget without a limit.
type unlimited struct{ *budget }

func (unlimited) Left(time.Time) int { return -1 }

func TestStatusHasNoNumberForABudgetWithoutALimit(t *testing.T) {
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Budget, c.Rules[0].Evict = unlimited{&budget{}}, true }, func(e *engine) {
		if s := e.rule(); s.BudgetLeft != nil || !s.Evicts {
			t.Errorf("%+v", s)
		}
	})
}
