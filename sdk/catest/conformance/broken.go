package conformance

import (
	"context"
	"errors"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// first is the check that opens the first instance. If it can open none, no check can.
const first = "META-01"

// One fault fails one check: those that could not be made because of it are not run.

// openError means that no instance could be opened.
type openError struct{ error }

func (e openError) Unwrap() error { return e.error }

// firstOpening returns the error of a check; where no instance could be opened for it, and not
// for an earlier one either, the check was not made.
func (s *Session) firstOpening(c Check, err error) error {
	unopened, ok := errors.AsType[openError](err)
	if _, unrun := errors.AsType[notRunError](err); !ok || unrun {
		return err
	}
	if s.unopened != "" {
		return NotRun("%w, as in %s", unopened.error, s.unopened)
	}
	s.unopened, s.closed = c.ID, unopened.error
	return err
}

// replaceBroken closes the shared instances if a check failed and broke a connection: the next
// check opens others.
func (s *Session) replaceBroken(ctx context.Context, err error) {
	if _, unrun := errors.AsType[notRunError](err); err == nil || unrun {
		return
	}
	for _, i := range s.held {
		if i.Conn != nil && s.broken(ctx, i) {
			s.closeAll(&s.held)
			s.share()
			return
		}
	}
}

// broken reports whether an instance no longer answers at all.
func (s *Session) broken(ctx context.Context, i *Instance) bool {
	_, err := s.metadata(ctx, i)
	return ca.ActionFor(err) == ca.Wait
}
