// Package real contains no code. Its tests, behind the tag e2e, run signing against real clusters:
// kubelets that ask, an API server that refuses, and attackers.
package real
