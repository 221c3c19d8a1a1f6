package text

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// WriteJSON writes a value as JSON in printable ASCII, and a newline. encoding/json escapes neither C1
// controls nor marks that reorder text: a certificate's subject could change what a terminal shows.
// Each level is indented by indent; without it, all is on one line.
func WriteJSON(w io.Writer, value any, indent string) error {
	text, err := json.Marshal(value)
	if indent != "" {
		text, err = json.MarshalIndent(value, "", indent)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(append(ascii(text), '\n'))
	return err
}

// ascii escapes what is not printable ASCII, which JSON has in strings alone.
func ascii(in []byte) []byte {
	out := make([]byte, 0, len(in))
	for _, r := range string(in) {
		switch {
		case r == '\n', r >= ' ' && r < 0x7f:
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}
