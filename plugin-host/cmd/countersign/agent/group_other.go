//go:build !unix

package agent

// processGroup knows none: there are no groups here.
func processGroup(int) (int, bool) { return 0, false }
