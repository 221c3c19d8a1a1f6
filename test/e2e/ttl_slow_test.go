//go:build race || e2e

package e2e

import "time"

// The race detector makes everything slower, and these tests are more at once.
const ttl = 20 * time.Second
