//go:build !linux

package proxy

import (
	"context"
	"log/slog"
	"time"
)

// OrphansInterval is for ReapOrphans.
const OrphansInterval = 10 * time.Second

// ReapOrphans does nothing here: nobody is given orphans but process 1.
func ReapOrphans(context.Context, time.Duration, *slog.Logger) {}
