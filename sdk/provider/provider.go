// Package provider is all that the author of a provider imports. Write a type with
// one method, CSRSign, a struct for its settings and a function that opens the one
// with the other; then main is
//
//	func main() { provider.Main("acme", "1.0.0", Open) }
//
// What else the authority can do ([RootSource], [RootWatcher], [TokenExchanger],
// [io.Closer]) is found by the methods that the type has.
package provider

import (
	"github.com/countersign-dev/countersign/sdk/ca"
)

// The contract, under the names that an author needs. Package ca has their
// promises.
//
//nolint:revive // the comment above is for all of them
type (
	Client         = ca.Client
	SignRequest    = ca.SignRequest
	Certificate    = ca.Certificate
	RootSource     = ca.RootSource
	RootWatcher    = ca.RootWatcher
	TokenExchanger = ca.TokenExchanger
	TokenRequest   = ca.TokenRequest
	ExchangedToken = ca.ExchangedToken
	Token          = ca.Token
	Error          = ca.Error
	Reason         = ca.Reason
)

// The reasons of an [Error]; package ca says what a host does after each.
const (
	Invalid         = ca.Invalid
	Denied          = ca.Denied
	Unauthenticated = ca.Unauthenticated
	RateLimited     = ca.RateLimited
	Unavailable     = ca.Unavailable
	Aborted         = ca.Aborted
	Internal        = ca.Internal
)

// Errorf returns an [*Error]: the reason tells the host what to do, the text is a
// sentence for the operator, without a key or a token. It may wrap a cause with %w.
func Errorf(reason Reason, format string, args ...any) *Error {
	return ca.Errorf(reason, format, args...)
}
