package status

import (
	"net/http"

	"github.com/countersign-dev/countersign/internal/program/operatorpage"
)

// Page returns a handler that renders a report as HTML. The page is complete without its
// script, which only keeps it up to date and filters rows. The query secret=NAME shows that
// secret in full.
func Page(report func() Report) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		page := write(report(), q.URL.Query().Get("secret"))
		operatorpage.SetHeaders(w, operatorpage.Style)
		_, _ = page.out.WriteTo(w) // a client that went away
	})
}

func write(r Report, opened string) *markup {
	m := &markup{now: r.At}
	m.head(r)
	m.opened(r, opened)
	m.problems(r)
	m.secrets(r)
	m.workloads(r.Workloads)
	m.onDemand(r.OnDemand)
	m.jwtSVIDs(r.JWTSVIDs)
	m.witSVIDs(r.WITSVIDs)
	m.gateway(r.Gateway)
	m.outputs(r)
	m.errors(r)
	m.providers(r)
	m.roots(r)
	m.streams(r)
	m.machine(r)
	m.foot(r)
	return m
}

func (m *markup) head(r Report) {
	whole, where, prefix := r.Summary(), "", ""
	if host := clean(r.Machine.Host); host != "" {
		where, prefix = " on "+host, host+": "
	}
	m.put(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%v%v – Countersign</title>
<link rel="icon" href="data:,">
<noscript><meta http-equiv="refresh" content="15"></noscript>
<style>`, prefix, whole.Words)
	m.out.WriteString(operatorpage.Style) // ours, whole and embedded: nothing foreign is in it
	m.put(`</style>
</head>
<body>
<a class="skip" href="#main">Skip to the secrets</a>
<header>
<h1>Countersign%v</h1>
<p id="summary" role="status" data-live><strong class="mark %v">%v</strong></p>
<p class="updated"><span id="updated" data-live>As of <time datetime="%v">%v</time>; all times are UTC.</span> <button type="button" id="pause" aria-pressed="false" hidden>Pause updates</button></p>
<p id="stale" role="status"></p>
</header>
<main id="main" tabindex="-1">
`, where, whole.Grade, whole.Words, operatorpage.At(r.At, r.At).Exact, r.At.UTC().Format("2006-01-02 15:04:05"))
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
<p><a href="/status">Status as JSON</a> · <a href="/metrics">Metrics</a> · <a href="/readyz">Readiness</a></p>
</footer>
<script>`, clean(r.Build.Version), revision, clean(r.Build.Platform), clean(r.Build.Go))
	m.out.WriteString(operatorpage.Script) // as the style
	m.put("</script>\n</body>\n</html>\n")
}
