package program

import (
	_ "embed" // the page
	"html/template"
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
)

//go:embed page.html
var pageText string

var pageTemplate = daemon.Template(pageText, template.FuncMap{
	"cluster": func(s fleet.State) string {
		return map[fleet.State]string{fleet.Synced: good, fleet.Connecting: fair}[s]
	},
	"phase": func(phase string) string {
		if phase == "trusted" {
			return good
		}
		return fair
	},
	"protection": func(state string) string {
		return map[string]string{guard.Protected: good, guard.Unknown: fair}[state]
	},
})

// view is a report with what the page needs.
type view struct {
	report
	Frame daemon.Frame
}

// When returns t relative to the time of the report.
func (v view) When(t time.Time) operatorpage.Moment { return v.Frame.When(t) }

// show writes the page.
func show(w http.ResponseWriter, r report) {
	daemon.Show(w, pageTemplate, view{r, daemon.Frame{
		Program: program, At: r.At, Build: r.Build, Process: r.Process, Summary: r.Summary(), Problems: r.Problems(), Providers: r.Providers,
	}})
}

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
		Probes: probes, Metrics: s.metrics.registry,
		Report: func() any { return s.report() }, Page: func(w http.ResponseWriter) { show(w, s.report()) },
	}
}
