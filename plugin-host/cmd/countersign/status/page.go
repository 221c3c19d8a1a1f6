package status

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

var (
	//go:embed page.css
	styleText string
	//go:embed page.js
	scriptText string
)

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
		page := write(report())
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
		_, _ = page.out.WriteTo(w) // a client that went away
	})
}

func write(r Report) *markup {
	m := &markup{now: r.At}
	m.head(r)
	m.secrets(r)
	m.workloads(r.Workloads)
	m.gateway(r.Gateway)
	m.errors(r)
	m.providers(r)
	m.roots(r)
	m.streams(r)
	m.foot(r)
	return m
}

func (m *markup) head(r Report) {
	whole := r.Summary()
	m.put(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%v – Countersign</title>
<link rel="icon" href="data:,">
<noscript><meta http-equiv="refresh" content="15"></noscript>
<style>`, whole.Words)
	m.out.WriteString(styleText) // ours, whole and embedded: nothing foreign is in it
	m.put(`</style>
</head>
<body>
<a class="skip" href="#main">Skip to the secrets</a>
<header>
<h1>Countersign</h1>
<p id="summary" role="status" data-live><strong class="mark %v">%v</strong></p>
<p class="updated"><span id="updated" data-live>As of <time datetime="%v">%v</time>; all times are UTC.</span> <button type="button" id="pause" aria-pressed="false" hidden>Pause updates</button></p>
<p id="stale" role="status"></p>
</header>
<main id="main" tabindex="-1">
`, whole.Grade, whole.Words, at(r.At, r.At).Exact, r.At.UTC().Format("2006-01-02 15:04:05"))
}

func (m *markup) foot(r Report) {
	revision := ""
	if r.Build.Revision != "" {
		revision = " (" + clean(r.Build.Revision) + ")"
	}
	m.put(`
</main>
<footer>
<p>countersign %v%v, %v, %v</p>
<p><a href="/status">The same as JSON</a> · <a href="/metrics">Metrics</a> · <a href="/readyz">Readiness</a></p>
</footer>
<script>`, clean(r.Build.Version), revision, clean(r.Build.Platform), clean(r.Build.Go))
	m.out.WriteString(scriptText) // as the style
	m.put("</script>\n</body>\n</html>\n")
}
