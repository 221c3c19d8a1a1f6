//go:build !unix

package errno

func openFiles() string { return "" }

// OpenFiles returns how many files this process may have open; 0: unknown.
func OpenFiles() uint64 { return 0 }
