// Package provider is all that the author of a provider imports. Write a type with
// one method, CSRSign, a struct for its settings and a function that opens the one
// with the other; then main is
//
//	func main() { provider.Main("acme", "1.0.0", Open) }
//
// What else the authority can do ([RootSource], [RootWatcher], [TokenExchanger],
// [io.Closer]) is found by the methods that the type has. What an error means to the
// host is said by the function around it: [Denied], [Unavailable], [RetryAfter] and
// so on.
//
// The struct of the settings is their documentation and their check. Its fields take
// these tags beside `json`:
//
//	jsonschema:"…"     what the setting is: a sentence for who writes a configuration
//	default:"24h"      what it is where nothing is set; JSON, or a string as it is
//	enum:"cas,meshca"  the only values, of a string or of a list of strings
//	secret:"true"      the value is never printed; writeOnly and x-secret in the schema
//
// A field without a default and without omitempty or omitzero is required. What
// tags cannot say is said by methods of the struct: Validate() for what shows without
// network, ValidateOnline(ctx) for what the authority has to be asked. Each returns an
// error (of several, errors.Join) or a []Diagnostic.
package provider

import (
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// The contract, under the names that an author needs. Packages ca and wire have their
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
	Diagnostic     = wire.Diagnostic
)
