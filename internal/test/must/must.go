// Package must ends a test at an error that it is not about.
package must

import "testing"

// Do ends the test at the first error.
func Do(tb testing.TB, errs ...error) {
	tb.Helper()
	for _, err := range errs {
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// Get returns the value, or panics: for calls that return two, where no test is at hand.
func Get[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
