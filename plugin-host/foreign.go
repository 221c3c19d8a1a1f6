package pluginhost

import "github.com/countersign-dev/countersign/sdk/provider/wire"

// plain returns a text that somebody else wrote for a log: control characters
// escaped, cut to 256 bytes.
func plain(s string) string { return wire.CleanText(s, "") }

// foreign returns s like plain, in quotes, for an error.
func foreign(s string) string { return `"` + plain(s) + `"` }
