package ra

import "slices"

// CheckedFor lists the checks of a reply that have a row in the table of scopes.
func CheckedFor() (checks []string) {
	for check := range scopes {
		checks = append(checks, check)
	}
	slices.Sort(checks)
	return checks
}
