package wire

import (
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// CleanText makes foreign text safe for a log or an error. It replaces each token, and each
// piece of one of 16 bytes or more, with "(secret)", escapes what does not print as Go does
// (\n, \x00, \u202e), and cuts the result to 256 bytes.
func CleanText(foreign string, tokens ...ca.Token) string { return text.Redact(foreign, tokens...) }
