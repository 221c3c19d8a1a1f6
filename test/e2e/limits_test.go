//go:build e2e && !race

package e2e

import "testing"

// The race detector takes many times the memory, so this is not among the other tests.
func TestMinimumLimitsAreEnough(t *testing.T) {
	a := startAgent(t, agentConfig{selfSigned: true, limits: map[string]any{
		"memory": "64Mi", "descriptors": 32, "processes": 32, "cpu": 0.01,
	}})
	startWorkload(t, a.socket, "default")
}
