package xds

import (
	"strconv"
	"strings"
)

// maxText bounds foreign text in logs, errors and events, in bytes.
const maxText = 256

// clip returns foreign text as it may be shown: cut to 256 bytes, what cannot be
// printed escaped as in a Go string.
func clip(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
