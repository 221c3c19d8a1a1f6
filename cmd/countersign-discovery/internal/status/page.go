package status

import (
	_ "embed" // the page
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/secrets"
)

//go:embed page.html
var pageText string

// maxStreams limits what the page lists; /status.json has no limits.
const maxStreams = 200

var pageTemplate = daemon.Template(pageText, template.FuncMap{
	"short": short,
	"head":  func(version string) string { return version[:min(8, len(version))] },
	"held":  markOf,
	"cluster": func(s fleet.State) string {
		return map[fleet.State]string{fleet.Synced: good, fleet.Connecting: fair}[s]
	},
	"watched": func(s secrets.State) string {
		return map[secrets.State]string{secrets.Valid: good, secrets.Ending: fair}[s]
	},
	"file": func(s folder.State) string { return map[folder.State]string{folder.Served: good, folder.Kept: fair}[s] },
})

// short returns the last part of a type URL.
func short(url string) string { return url[strings.LastIndexAny(url, "./")+1:] }

// view is a report with what the page needs.
type view struct {
	Report
	Frame daemon.Frame
}

// When returns t relative to the time of the report.
func (v view) When(t time.Time) operatorpage.Moment { return v.Frame.When(t) }

// Streams returns the streams to show, rejecting ones first, else in order of arrival.
func (v view) Streams() []discovery.StreamStatus {
	refuses := func(s discovery.StreamStatus) bool {
		return slices.ContainsFunc(s.Types, discovery.TypeStatus.Refusing)
	}
	all := slices.Clone(v.Server.Streams)
	slices.SortStableFunc(all, func(a, b discovery.StreamStatus) int {
		switch {
		case refuses(a) == refuses(b):
			return 0
		case refuses(a):
			return -1
		}
		return 1
	})
	return all[:min(maxStreams, len(all))]
}

// Answered returns what became of the last push of a type.
func (v view) Answered(t discovery.TypeStatus) mark {
	switch {
	case t.Refusing():
		return mark{Words: "rejected " + v.When(t.Refused.At).Far, Grade: bad}
	case t.Pushes == 0:
		return mark{Words: "nothing to send yet", Grade: fair}
	case t.Acked != t.Sent:
		return mark{Words: "no response yet", Grade: fair}
	}
	return mark{Words: "accepted", Grade: good}
}

// Show writes the page.
func Show(w http.ResponseWriter, r Report) {
	daemon.Show(w, pageTemplate, view{r, daemon.Frame{
		Program: "countersign-discovery", At: r.At, Build: r.Build, Process: r.Process, Summary: r.Summary(), Problems: r.Problems(), Providers: r.Providers,
	}})
}
