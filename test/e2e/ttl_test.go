//go:build !race && !e2e

package e2e

import "time"

// A rotation comes every 2 s, and the old certificate lives on for 8 s more: a machine that
// is busy with other things fails no test.
const ttl = 10 * time.Second
