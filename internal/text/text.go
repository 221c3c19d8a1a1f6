// Package foreign makes text of others fit for a log or an error: [Clean].
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	maxText    = 256
	tokenShown = "(token)"
	// A shorter end of a message that happens to begin like the token is left.
	minTokenPart = 8
	// So many bytes in a row that stand in the token are a piece of it.
	tokenPiece = 20
)

// Clean makes foreign text fit for a log or an error: each token, and each piece of
// one of 20 bytes or more, is replaced by "(token)", what does not print is escaped
// as in Go (\n, \x00, \u202e), and the whole is cut to 256 bytes.
func Clean(text string, tokens ...ca.Token) string {
	// The tokens go first, as half of one is not recognised after the cut; and whole
	// ones before pieces, as two of one issuer begin alike.
	for _, token := range tokens {
		if whole := strings.TrimSpace(token.Reveal()); whole != "" {
			text = strings.ReplaceAll(text, whole, tokenShown)
		}
	}
	for _, token := range tokens {
		text = dropParts(text, strings.TrimSpace(token.Reveal()))
	}
	var out strings.Builder
	fits := 0 // where the text can be cut without cutting a rune or an escape
	for len(text) > 0 && out.Len() <= maxText {
		r, size := utf8.DecodeRuneInString(text)
		out.WriteString(escapeRune(r, text[:size]))
		if out.Len() <= maxText-len("…") {
			fits = out.Len()
		}
		text = text[size:]
	}
	if out.Len() > maxText {
		return out.String()[:fits] + "…"
	}
	return out.String()
}

func escapeRune(r rune, raw string) string {
	switch {
	case r == utf8.RuneError && len(raw) == 1:
		return fmt.Sprintf(`\x%02x`, raw[0])
	case unicode.IsPrint(r):
		return raw
	}
	quoted := fmt.Sprintf("%q", raw)
	return quoted[1 : len(quoted)-1]
}

// dropParts replaces every piece of the token that is long enough to tell: whoever
// wrote the text may have cut it, or show a part of it only.
func dropParts(text, token string) string {
	end := strings.TrimRight(text, ".…")
	for n := min(len(token), len(end)); n >= minTokenPart; n-- {
		if cut, found := strings.CutSuffix(end, token[:n]); found {
			text = cut + tokenShown
			break
		}
	}
	return dropPieces(text, token)
}

// dropPieces replaces what stands in the token, tokenPiece bytes and more of it.
func dropPieces(text, token string) string {
	pieces := map[string]bool{}
	for i := range len(token) - tokenPiece + 1 {
		pieces[token[i:i+tokenPiece]] = true
	}
	var out strings.Builder
	for i := 0; i < len(text); {
		end := i
		for end+tokenPiece <= len(text) && pieces[text[end:end+tokenPiece]] {
			end++
		}
		if end == i {
			out.WriteByte(text[i])
			i++
			continue
		}
		out.WriteString(tokenShown)
		i = end + tokenPiece - 1
	}
	return out.String()
}
