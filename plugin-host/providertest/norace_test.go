//go:build !race

package providertest

// watched tells whether the race detector is in the programs.
const watched = false
