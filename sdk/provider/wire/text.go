package wire

import (
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// CleanText makes foreign text fit for a log or an error: token, and each piece of
// it of 20 bytes or more, is replaced by "(token)", what does not print is escaped
// as in Go (\n, \x00, \u202e), and the whole is cut to 256 bytes.
func CleanText(foreign string, token ca.Token) string { return text.Clean(foreign, token) }
