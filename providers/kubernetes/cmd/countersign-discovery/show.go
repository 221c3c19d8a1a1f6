package main

import (
	_ "embed" // the page
	"html/template"
	"net/http"
	"time"
)

//go:embed page.html
var pageText string

// pageTemplate has no script, and escapes what clients and API servers have said.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"ago": func(at time.Time) string { return time.Since(at).Round(time.Second).String() },
	"in":  func(at time.Time) string { return time.Until(at).Round(time.Second).String() },
	"at":  func(at time.Time) string { return at.UTC().Format(time.RFC3339) },
	"short": func(text string) string { // of a type URL, what tells it from others
		for i := len(text) - 1; i >= 0; i-- {
			if text[i] == '.' || text[i] == '/' {
				return text[i+1:]
			}
		}
		return text
	},
}).Parse(pageText))

// show writes the report as a page.
func show(w http.ResponseWriter, r report) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	_ = pageTemplate.Execute(w, r) // a client that went away
}
