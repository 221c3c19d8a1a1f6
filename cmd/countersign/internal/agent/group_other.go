//go:build !unix

package agent

// processGroup returns nothing: there are no groups on this system.
func processGroup(int) (int, bool) { return 0, false }
