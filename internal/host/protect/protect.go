// Package protect keeps a process's keys out of core dumps and of what another process
// of the same user may read of its memory: call [Process] before the first key exists,
// and tell the operator what [Missing] says.
package protect

// Process protects this process for as long as it runs.
func Process() error { return protect() }

// Missing is what cannot be protected on this system, in words; empty: nothing.
func Missing() string { return missing }
