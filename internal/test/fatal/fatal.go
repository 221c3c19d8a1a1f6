// Package fatal ends tests whose preparations fail.
package fatal

import (
	"errors"
	"testing"
)

// If ends the test if one of errs is not nil.
func If(tb testing.TB, errs ...error) {
	tb.Helper()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}
