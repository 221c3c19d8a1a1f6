// Package redact removes bearer tokens from the text of errors: [Error].
package redact

import (
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Error returns err or, if its text quotes a token or a piece of one, a [*ca.Error] of the
// same reason and wait with "(secret)" in place of it. That error wraps nothing, as what it
// would wrap quotes the token.
func Error(err error, tokens ...ca.Token) error {
	if err == nil {
		return nil
	}
	was := err.Error()
	is := text.WithoutTokens(was, tokens...)
	if is == was {
		return err
	}
	reason := ca.ReasonFor(err)
	return &ca.Error{Reason: reason, Message: strings.TrimPrefix(is, reason.String()+": "), RetryAfter: ca.RetryAfter(err)}
}
