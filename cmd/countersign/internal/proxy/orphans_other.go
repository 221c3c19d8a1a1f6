//go:build !linux

package proxy

import (
	"context"
	"log/slog"
	"time"
)

// OrphansInterval is the usual interval of ReapOrphans.
const OrphansInterval = 10 * time.Second

// ReapOrphans does nothing on this system.
func ReapOrphans(context.Context, time.Duration, *slog.Logger) {}
