package operatorpage

import (
	"crypto/sha256"
	_ "embed" // the style and the script
	"encoding/base64"
	"net/http"
	"strings"
)

var (
	// Style is how all pages look, light and dark, on a phone and on paper.
	//
	//go:embed page.css
	Style string
	// Script keeps a page up to date: what is of data-live is put in place of what was
	// there, by its id. It needs the elements updated, pause and stale. A field pattern, where
	// there is one, filters the elements of data-row.
	//
	//go:embed page.js
	Script string
)

// SetHeaders lets a page load nothing but itself: no other style than this one stands in
// it, and no script but [Script].
func SetHeaders(w http.ResponseWriter, style string) {
	policy := strings.Join([]string{
		"default-src 'none'", "style-src " + hashOf(style), "script-src " + hashOf(Script),
		"connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
	}, "; ")
	for name, value := range map[string]string{
		"Content-Type":                 "text/html; charset=utf-8",
		"Content-Security-Policy":      policy,
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cache-Control":                "no-store",
	} {
		w.Header().Set(name, value)
	}
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
