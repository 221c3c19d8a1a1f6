package agent

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/agent"
)

// showAgent serves /, /healthz, /readyz, /metrics and /status. They have no authentication, so
// the address is local, and they never show a key. POST /renew is for a user that the kernel vouches for.
func showAgent(page *operatorpage.Page, out *outsidePages, a *agent.Agent, providers *providers, m *metrics.Metrics, child *proxyChild, jwts jwtSVIDs, wits witSVIDs, machine overview.Machine, log *slog.Logger) {
	report := func() status.Report { return reportOf(a, providers, child, jwts, wits, machine) }
	m.Watch(a, report)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", operatorpage.Say(http.StatusOK, "ok"))
	mux.HandleFunc("GET /readyz", readiness(a, child, func() []string { return report().Warnings() }))
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /{$}", status.Page(report))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = text.WriteJSON(w, report().WithHeadline(), "  ") // a client that went away
	})
	mux.HandleFunc("POST /renew", renewal(a, providers.refuse, log))
	page.Show(mux)
	out.show(a.Secrets(), m.Registry, readiness(a, child, func() []string { return nil })) // who may ask there learns no more
}

// readiness reports whether all secrets are held and the proxy, if configured, takes traffic,
// and what else is wrong, a line each.
func readiness(a *agent.Agent, child *proxyChild, warnings func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if missing := a.Ready(); len(missing) > 0 {
			operatorpage.Say(http.StatusServiceUnavailable, "not held: "+strings.Join(missing, ", "))(w, r)
			return
		}
		if err := a.SocketErr(); err != nil {
			operatorpage.Say(http.StatusServiceUnavailable, "no client can connect: "+text.Clean(err.Error()))(w, r)
			return
		}
		if why := child.notReady(r.Context()); why != "" {
			operatorpage.Say(http.StatusServiceUnavailable, why)(w, r)
			return
		}
		operatorpage.Say(http.StatusOK, strings.Join(append([]string{"ok"}, warnings()...), "\n"))(w, r)
	}
}
