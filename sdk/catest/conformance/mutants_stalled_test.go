//go:build e2e

package conformance

import "testing"

// A check that fails is repeated where the machine stands still: that changes no verdict.
func TestMutantsFailThatCheckOnAMachineThatStandsStill(t *testing.T) {
	eachMutantFails(t, func() func() bool { return func() bool { return true } })
}
