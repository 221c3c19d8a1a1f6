package provider

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// offline has settings check themselves, where their struct can. An error is what a
// Validate() error said, for its reason; what it found is the same in words.
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

// online has settings ask the authority, where their struct can.
func online(ctx context.Context, settings any) ([]Diagnostic, error) {
	switch s := settings.(type) {
	case interface {
		ValidateOnline(ctx context.Context) error
	}:
		return diagnosticsOf(s.ValidateOnline(ctx)), ctx.Err()
	case interface {
		ValidateOnline(ctx context.Context) []Diagnostic
	}:
		return s.ValidateOnline(ctx), ctx.Err()
	}
	return nil, ca.Errorf(ca.Unimplemented, "this provider has no check that asks its authority")
}

// diagnosticsOf makes a diagnostic of each error that was joined.
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

// asInvalid keeps the reason that the author gave, and gives one where he did not.
func asInvalid(err error, found []Diagnostic) error {
	if ca.ReasonFor(err) != ca.Unknown {
		return err
	}
	return &Error{Reason: ca.Invalid, Message: sentences(found), Err: err}
}
