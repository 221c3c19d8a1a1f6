package status

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	styleText string
	//go:embed page.js
	scriptText string
)

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"clean": clean, "all": cleanAll, "at": at, "short": short,
	// The two are ours, whole and embedded: nothing foreign is in them.
	"style":  func() template.CSS { return template.CSS(styleText) }, //nolint:gosec // see above
	"script": func() template.JS { return template.JS(scriptText) },  //nolint:gosec // see above
}).Parse(pageText))

// policy lets the page load nothing but itself, and run nothing but its own script.
var policy = strings.Join([]string{
	"default-src 'none'", "style-src " + hashOf(styleText), "script-src " + hashOf(scriptText),
	"connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
}, "; ")

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Page returns a handler that shows a report to a person. It needs no script to be
// read; with one it keeps itself up to date.
func Page(report func() Report) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var text bytes.Buffer
		if err := page.Execute(&text, report()); err != nil {
			http.Error(w, "the page could not be made: "+clean(err.Error()), http.StatusInternalServerError)
			return
		}
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
		_, _ = text.WriteTo(w) // a client that went away
	})
}
