package pluginhost

import (
	"errors"

	"github.com/countersign-dev/countersign/internal/host/verified"
)

// NotFoundError means that no folder has a provider of that name and version.
type NotFoundError struct {
	Name      string   // of the provider
	Version   string   // empty: the file without a version
	Dirs      []string // that were searched, in this order
	Installed []string // NAME or NAME@VERSION of those that the folders have
	err       error
}

// Error names what is missing, the folders, and what is installed.
func (e *NotFoundError) Error() string { return e.err.Error() }

// Unwrap implements [errors.Unwrap].
func (e *NotFoundError) Unwrap() error { return e.err }

// RefusedError means that the host does not run a file, for example because its hash differs
// from its pin or because another user may write it.
type RefusedError struct {
	Path   string // of the binary, or of the socket of [Entry.Attach]
	Reason string // in words for the operator
	err    error
}

// Error names the file and the reason.
func (e *RefusedError) Error() string { return e.err.Error() }

// Unwrap implements [errors.Unwrap].
func (e *RefusedError) Unwrap() error { return e.err }

// exported returns err as one of the errors above, with the same text, if its chain has an
// internal one.
func exported(err error) error {
	if e, ok := errors.AsType[*verified.NotFoundError](err); ok {
		return &NotFoundError{e.Name, e.Version, e.Dirs, e.Installed, err}
	}
	if e, ok := errors.AsType[*verified.RefusedError](err); ok {
		return &RefusedError{e.Path, e.Reason, err}
	}
	return err
}
