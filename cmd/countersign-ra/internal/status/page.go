package status

import (
	_ "embed" // the page
	"html/template"
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
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
	Report
	Frame daemon.Frame
}

// When returns t relative to the time of the report.
func (v view) When(t time.Time) operatorpage.Moment { return v.Frame.When(t) }

// Show writes the page.
func Show(w http.ResponseWriter, r Report) {
	daemon.Show(w, pageTemplate, view{r, daemon.Frame{
		Program: config.Program, At: r.At, Build: r.Build, Process: r.Process, Summary: r.Summary(), Problems: r.Problems(), Providers: r.Providers,
	}})
}
