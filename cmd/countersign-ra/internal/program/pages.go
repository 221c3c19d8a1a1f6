package program

import (
	"net/http"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
)

// content is what the pages show.
func (s *service) content() daemon.Content {
	probes := http.NewServeMux()
	probes.HandleFunc("GET /healthz", operatorpage.Say(http.StatusOK, "ok"))
	probes.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.ready(); err != nil {
			operatorpage.Say(http.StatusServiceUnavailable, err.Error())(w, r)
			return
		}
		operatorpage.Say(http.StatusOK, "ok")(w, r)
	})
	return daemon.Content{
		Probes: probes, Metrics: s.metrics.Registry,
		Report: func() any { return s.report() }, Page: func(w http.ResponseWriter) { status.Show(w, s.report()) },
	}
}
