//go:build !linux

package pluginhost

import "log/slog"

// forbidPrivileges does nothing here; missingProtection says so.
func forbidPrivileges(*slog.Logger) {}
