// Package protect keeps a process's keys out of core dumps and out of reach of other
// processes of the same user. Programs call [Process] before the first key exists, and log
// [Missing]. Providers call it unless they are [Traced].
package protect

// Process protects this process for as long as it runs. On Linux, programs that it starts do not
// inherit the capabilities to change owners, to read others' files and to signal others' processes,
// which a service manager may have given it.
func Process() error { return protect() }

// Traced reports whether a debugger started this process: it has the memory, and without privileges
// could not read that of a protected process.
func Traced() bool { return traced() }

// Missing describes what this system cannot protect; empty: nothing is missing.
func Missing() string { return missing }
