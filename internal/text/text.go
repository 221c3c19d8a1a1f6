// Package text makes foreign text fit for a log or an error: [Clean] escapes and cuts it,
// [Redact] also removes tokens. A value that an error shows in quotes needs neither, as
// fmt's %.256q does both.
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxText     = 256
	secretShown = "(secret)"
	// A shorter end of a message that happens to begin like the token is left.
	minTokenPart = 8
	// So many bytes in a row that stand in the token are a piece of it.
	tokenPiece = 16
)

// Clean escapes what does not print as Go does (\n, \x00, \u202e) and cuts the result to
// 256 bytes. Clean text stays as it is, so it may pass through Clean again.
func Clean(text string) string {
	if len(text) <= maxText && !strings.ContainsFunc(text, escaped) {
		return text
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

// CleanAll returns each text as Clean does.
func CleanAll(texts []string) []string {
	clean := make([]string, len(texts))
	for i, text := range texts {
		clean[i] = Clean(text)
	}
	return clean
}

// Redact is WithoutTokens, with the rest returned as Clean does.
func Redact[T interface{ Reveal() string }](text string, tokens ...T) string {
	// The tokens go first, as half of one is not recognised after the cut.
	return Clean(WithoutTokens(text, tokens...))
}

// WithoutTokens replaces each token, and each piece of one of 16 bytes or more, by
// "(secret)". It leaves the rest as it is.
func WithoutTokens[T interface{ Reveal() string }](text string, tokens ...T) string {
	// Whole ones go before pieces, as two of one issuer begin alike.
	for _, token := range tokens {
		if whole := strings.TrimSpace(token.Reveal()); whole != "" {
			text = strings.ReplaceAll(text, whole, secretShown)
		}
	}
	for _, token := range tokens {
		text = dropParts(text, strings.TrimSpace(token.Reveal()))
	}
	return text
}

// escaped is also true for what may be no UTF-8.
func escaped(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

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

// dropParts replaces every piece of the token that is long enough to recognize: the author
// of the text may have cut it, or quote only a part.
func dropParts(text, token string) string {
	end := strings.TrimRight(text, ".…")
	for n := min(len(token), len(end)); n >= minTokenPart; n-- {
		if cut, found := strings.CutSuffix(end, token[:n]); found {
			text = cut + secretShown
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
		out.WriteString(secretShown)
		i = end + tokenPiece - 1
	}
	return out.String()
}

// Quote is [Clean] in double quotes, for an error.
func Quote(text string) string { return `"` + Clean(text) + `"` }

// IsProviderName reports whether s can be a provider's name: [a-z0-9][a-z0-9-]{0,62}.
func IsProviderName(s string) bool {
	return s != "" && len(s) <= 63 && s[0] != '-' && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
}
