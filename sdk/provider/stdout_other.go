//go:build !unix

package provider

import "os"

// stdoutAside returns the standard output. What children and C code print on it
// still gets there; what Go code prints goes to standard error as everywhere.
func stdoutAside() (*os.File, error) {
	stdout := os.Stdout
	os.Stdout = os.Stderr
	return stdout, nil
}
