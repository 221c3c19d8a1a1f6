//go:build race

package e2e

// raceFlag has the programs watched as the tests are.
var raceFlag = []string{"-race"}
