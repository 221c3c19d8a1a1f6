package ra

import "time"

// Event is an outcome, for metrics: its texts are few, and none comes from a caller.
type Event struct {
	// Authority and Rule are empty where none was found.
	Authority, Rule string
	// Result is "issued", or a reason of package ca in words, such as "rate limited",
	// "check failed" for a reply that failed a check, or "withheld" for a certificate that was
	// issued, which is counted as well, and given to no caller.
	Result string
	// Waited is the time in the queue, and Took that of the authority's call; zero if there
	// was none.
	Waited, Took time.Duration
}

const (
	resultIssued = "issued"
	resultCheck  = "check failed"

	resultWithheld = "withheld"
)
