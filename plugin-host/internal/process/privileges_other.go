//go:build !linux

package process

import "log/slog"

// ForbidPrivileges does nothing here; MissingProtection says so.
func ForbidPrivileges(*slog.Logger) {}
