package provider

import (
	"context"
	"errors"
	"net"
	"slices"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// offline calls Validate of the settings, if there is one. err is the error of Validate, for
// its reason; found is the same as diagnostics.
func offline(settings any) (found []Diagnostic, err error) {
	switch s := settings.(type) {
	case interface{ Validate() error }:
		err = s.Validate()
		return diagnosticsOf(err), err
	case interface{ Validate() []Diagnostic }:
		found = s.Validate()
		return found, asError(found)
	}
	return nil, nil
}

// online calls ValidateOnline of the settings, if there is one.
func online(ctx context.Context, settings any) ([]Diagnostic, error) {
	switch s := settings.(type) {
	case interface {
		ValidateOnline(ctx context.Context) error
	}:
		return judged(s.ValidateOnline(ctx), ctx.Err())
	case interface {
		ValidateOnline(ctx context.Context) []Diagnostic
	}:
		found := s.ValidateOnline(ctx)
		for _, d := range found {
			if d.Err != nil && !d.Warning && !blamesSettings(d.Err) {
				return judged(d.Err, ctx.Err())
			}
		}
		return found, ctx.Err()
	}
	return nil, ca.Errorf(ca.Unimplemented, "the provider has no online check")
}

// Faults returns what ValidateOnline found if err is not nil: a fault of the setting at pointer (a JSON
// Pointer; it may be empty). If err does not blame the settings, as when the authority is down or
// rejects the caller, the check ends with it instead.
func Faults(pointer string, err error) []Diagnostic {
	if err == nil {
		return nil
	}
	return []Diagnostic{{Pointer: pointer, Summary: messageOf(err), Err: err}}
}

// judged returns what is wrong with the settings, or why the authority could not check them: it is
// down, or it rejects the caller. late is the error of the call's context.
func judged(err, late error) ([]Diagnostic, error) {
	switch {
	case late != nil:
		return nil, late
	case err == nil || blamesSettings(err):
		return diagnosticsOf(err), nil
	case ca.ReasonFor(err) == ca.Unknown:
		return nil, Unavailable(err)
	}
	return nil, err
}

// blamesSettings reports whether err, or one that was joined to it, is about the settings: it has
// the reason Invalid, or no reason and is not a network error.
func blamesSettings(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // as in diagnosticsOf
		return slices.ContainsFunc(joined.Unwrap(), blamesSettings)
	}
	_, network := errors.AsType[net.Error](err)
	reason := ca.ReasonFor(err)
	return reason == ca.Invalid || reason == ca.Unknown && !network
}

// diagnosticsOf returns a diagnostic for each joined error.
func diagnosticsOf(err error) []Diagnostic {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // a text around the joined ones is one sentence
	if !ok {
		return []Diagnostic{{Summary: messageOf(err)}}
	}
	var found []Diagnostic
	for _, one := range joined.Unwrap() {
		found = append(found, diagnosticsOf(one)...)
	}
	return found
}

// asInvalid gives err the reason Invalid unless it has one.
func asInvalid(err error, found []Diagnostic) error {
	if ca.ReasonFor(err) != ca.Unknown {
		return err
	}
	return &Error{Reason: ca.Invalid, Message: sentences(found), Err: err}
}
