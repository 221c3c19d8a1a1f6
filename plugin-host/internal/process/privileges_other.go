//go:build !linux

package process

import "log/slog"

// ForbidPrivileges does nothing here; MissingProtection reports it.
func ForbidPrivileges(*slog.Logger) {}
