// Package peers has what replicas of a program have in common: [Defaults] of what distinguishes
// them, and [CheckVersion] of the records that they share.
package peers

import (
	"crypto/rand"
	"log/slog"
	"os"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
)

// Defaults sets what is not set: a name that no other process has, also not the one before it in the
// same container; the wall clock; and the default log.
func Defaults(name *string, now *func() time.Time, log **slog.Logger) {
	if *name == "" {
		host, _ := os.Hostname() // the random part suffices
		*name = host + "_" + rand.Text()[:8]
	}
	if *now == nil {
		*now = clock.Wall
	}
	if *log == nil {
		*log = slog.Default()
	}
}
