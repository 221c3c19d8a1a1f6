//go:build !unix

package debugger

import (
	"context"
	"errors"
)

// Exec fails: this system cannot replace a process.
func Exec(context.Context, string, []string) error {
	return errors.New("providers in other languages than Go cannot be debugged on this system")
}
