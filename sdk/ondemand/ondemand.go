// Package ondemand (experimental) gets certificates for names that no configuration lists: the
// first subscription for a name that a [Rule] matches starts its decision and its order. A Set is a
// [secret.Source], which a server such as sdk/sds asks in the middle of a TLS handshake.
//
// What it costs decides the order of the checks: the syntax of the name, the patterns, answers
// that are remembered, Rule.Ask, Rule.Budget, and then one order for a name, however many
// subscribe to it. A name that no rule matches costs the match and nothing else.
// docs/decisions/0042-certificates-on-demand.md gives the rationale.
package ondemand
