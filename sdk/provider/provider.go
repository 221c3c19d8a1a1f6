// Package provider (for authors of providers) is the one package that the author of a provider
// imports. Write a type with one method, CSRSign, a struct for its settings, and a function that
// opens the type with settings. Then main is
//
//	func main() { provider.Main("acme", "1.0.0", Open) }
//
// Further abilities of the authority ([RootSource], [RootWatcher], [TokenExchanger],
// [NameCertifier], [RenewalAdvisor], [RevocationSource], [JWTSigner], [WITSigner],
// [io.Closer]) are found by the
// methods of the type. Wrap an error in the function for what it means to the host: [Denied],
// [Unavailable], [RetryAfter] and so on.
//
// What the author knows about the CA beforehand, such as that it chooses the lifetime, is
// stated by [Definition.WithFacts].
//
// The struct of the settings documents and checks them. Its fields take these tags beside
// `json`:
//
//	jsonschema:"…"     a description for the author of a configuration
//	default:"24h"      the value if nothing is set; JSON, or a string as it is
//	enum:"cas,meshca"  the only values of a string or of a list of strings
//	pattern:"^a+$"     a regular expression that a string matches
//	secret:"true"      never print the value; writeOnly and x-secret in the schema
//	address:"url"      the address of the CA, in the form host:port, path, url or text: an
//	                   operator writes it as NAME://ADDRESS, or as the entry's address
//
// An operator may write a secret as {file: PATH}, {env: NAME} or {command: [PROGRAM]}: the host
// reads it, and the provider gets the text. A time.Duration is written with a unit, as in
// "24h"; package setting has types for sizes, URLs, files, certificates and TLS.
//
// A field without a default and without omitempty or omitzero is required. Checks beyond the
// tags are methods of the struct: Validate() without network access, ValidateOnline(ctx) with
// calls to the authority. Each returns an error (for several, errors.Join) or a []Diagnostic
// ([Faults]). An error of ValidateOnline that is Unavailable, Denied and so on, or a network error, does not
// blame the settings.
//
// The methods of the type are called from any goroutine, several at once. Everything else is
// this package's: the process, its log, the connection to the host.
//
// Packages beside it help with common authorities: rest with JSON over HTTPS, setting with
// the types of settings, filewatch with files that change, testkit with tests.
package provider

import (
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// The contract, under the names that an author needs. Packages ca and wire document it.
//
//nolint:revive // the comment above is for all of them
type (
	Client           = ca.Client
	SignRequest      = ca.SignRequest
	Certificate      = ca.Certificate
	RootSource       = ca.RootSource
	RootWatcher      = ca.RootWatcher
	TokenExchanger   = ca.TokenExchanger
	NameCertifier    = ca.NameCertifier
	RenewalAdvisor   = ca.RenewalAdvisor
	RenewalInfo      = ca.RenewalInfo
	RevocationSource = ca.RevocationSource
	JWTSigner        = ca.JWTSigner
	JWTRequest       = ca.JWTRequest
	WITSigner        = ca.WITSigner
	WITRequest       = ca.WITRequest
	TokenRequest     = ca.TokenRequest
	ExchangedToken   = ca.ExchangedToken
	Facts            = ca.Facts
	NameMatch        = ca.NameMatch
	Token            = ca.Token
	Error            = ca.Error
	Reason           = ca.Reason
	Diagnostic       = wire.Diagnostic
)

// The matches of [Facts]; the default is the exact one.
const (
	MatchTrustDomain = ca.MatchTrustDomain
	MatchAny         = ca.MatchAny
)
